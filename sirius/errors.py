"""Every error that Sirius raises, in one tree.

::

    SiriusError
    ├── UsageError                     the caller asked for something that makes no sense
    │   ├── InvalidRecord              a key, body or block that the log does not take
    │   └── OutOfOrder                 a block that does not begin where the log ends
    ├── LogError                       something about a log on disk
    │   ├── NotALog                    the path holds no log
    │   ├── LogLocked                  another process (or this one) has it open for writing
    │   ├── LogClosed                  the log was closed, or failed before
    │   ├── LogFailed                  a write or sync failed: the outcome of what was pending is unknown
    │   │   └── DiskFull               no room: nothing of the refused write is in the log
    │   ├── RangeUnavailable           a range that exists but cannot be read here; ask a peer
    │   ├── ResyncRequired             deletes below the tombstone floor are gone; replace everything
    │   └── CorruptLog                 bytes that fail their checksum or their place
    │       ├── CorruptFile            with the file and the offset
    │       └── MissingSegment         the manifest names it, the disk does not hold it
    ├── NodeError                      something about a running node
    │   ├── NodeClosed                 the node was closed, or lives in another process
    │   ├── Overloaded                 too many requests are waiting; this one was not taken
    │   ├── RequestRejected            the update is not in the log and never will be
    │   ├── OutcomeUnknown             the update may be in the log, or come there yet
    │   ├── HandlerFailed              the update is in the log, and this node's handler fails on it or before
    │   └── ReadFailed                 a read could not be done now; it changed nothing
    ├── TransportError                 something about the network
    │   ├── BadMessage                 bytes that are no message of ours
    │   ├── Unreachable                nobody answers at the address, or goes on answering
    │   ├── WrongCertificate           one end does not trust the certificate of the other
    │   └── NotPermitted               the caller's certificate does not allow it
    └── InvariantViolation             a bug in Sirius itself, with the numbers

An error says whose fault it was by its branch. `outcome_unknown` says whether a failed write may still be found in the
log later on. `exit_code` is what a command that dies of it returns: 1 for something found wrong, 2 for wrong usage.
"""

from __future__ import annotations

from typing import ClassVar


class SiriusError(Exception):
    """The root. Catch it to catch everything that Sirius raises on purpose."""

    exit_code: ClassVar[int] = 1
    outcome_unknown: ClassVar[bool] = False


class UsageError(SiriusError):
    """The caller's fault; nothing was changed."""

    exit_code = 2


class InvalidRecord(UsageError):
    """A key, a body or a block that the log does not take."""


class OutOfOrder(UsageError):
    """A block that does not begin where the log ends."""


class LogError(SiriusError):
    """Something about a log on disk."""


class NotALog(LogError):
    """The path holds no log of ours."""

    exit_code = 2


class LogLocked(LogError):
    """Somebody has the log open for writing."""

    exit_code = 2


class LogClosed(LogError):
    """The log was closed before the call."""

    exit_code = 2


class LogFailed(LogError):
    """A write or a sync failed. It is never retried: close the log and open it again."""

    outcome_unknown = True


class DiskFull(LogFailed):
    """The disk has no room. The refused write was taken back and is not in the log."""

    outcome_unknown = False


class RangeUnavailable(LogError):
    """The range exists, but this log cannot prove what is in it."""

    def __init__(self, first: int, last: int, reason: str) -> None:
        super().__init__(f"sequence numbers {first} to {last} are unavailable: {reason}")
        self.first = first
        self.last = last
        self.reason = reason


class ResyncRequired(LogError):
    """Deletes below the tombstone floor are gone, so a part cannot be taken alone."""

    def __init__(self, position: int, floor: int) -> None:
        super().__init__(
            f"position {position} is below the tombstone floor {floor}: deletes in between are "
            f"no longer in the log, take the whole state instead"
        )
        self.position = position
        self.floor = floor


class CorruptLog(LogError):
    """Bytes that fail their checksum or stand in the wrong place."""


class CorruptFile(CorruptLog):
    """A damaged file, with the offset at which the damage begins."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at byte {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class MissingSegment(CorruptLog):
    """The manifest names a segment that the disk does not hold."""


class NodeError(SiriusError):
    """Something about a running node."""


class NodeClosed(NodeError):
    """The node was closed, or this is not the process that opened it."""

    exit_code = 2


class Overloaded(NodeError):
    """Too many requests are waiting. This one was not taken: try again later."""


class RequestRejected(NodeError):
    """The update is not in the log and never will be."""


class OutcomeUnknown(NodeError):
    """Nobody here can say whether the update is in the log, or will be."""

    outcome_unknown = True


class HandlerFailed(NodeError):
    """The handler of this node raised again and again, so nothing more is applied here.

    An update that this is the answer to is in the log under `seq`, unless that is None. Mend the handler and restart.
    """

    def __init__(self, message: str, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class ReadFailed(NodeError):
    """A read could not be done now. It changed nothing."""


class TransportError(SiriusError):
    """Something about the network."""


class BadMessage(TransportError):
    """Bytes from the network that are no message of ours. Nothing of it was believed."""


class Unreachable(TransportError):
    """Nobody answers at the address, or goes on answering. Nothing was changed by it."""


class WrongCertificate(TransportError):
    """One end does not trust the certificate of the other. Nothing was changed."""

    exit_code = 2


class NotPermitted(TransportError):
    """The caller's certificate does not allow it. Nothing was changed."""

    exit_code = 2


class InvariantViolation(SiriusError):
    """A bug in Sirius. The message carries the numbers."""
