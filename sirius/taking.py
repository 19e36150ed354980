"""Segments on their way into the log: what catch-up asks for, done on the disk.

The counterpart of `sirius.feeding`. The steps are done one after the other, in their order, and on any one thread but
the engine's: they read a stream, check, write and sync. The outcome of each goes back to the engine's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from sirius.catchup.effects import FetchSegment, InstallSegment
from sirius.catchup.messages import PullFile, SegmentOffer
from sirius.codec import BlockCodec
from sirius.errors import SiriusError, TransportError, Unreachable
from sirius.paxos.members import Configuration
from sirius.paxos.sessions import Sessions
from sirius.wal import Block, Log, SegmentInfo
from sirius.wal.incoming import Incoming
from sirius.wal.parts import Part

_SMALL_BLOCK: Final = 64
"""Below so many entries a block, looking at many blocks together is cheaper."""


class Stream(Protocol):
    """Where the bytes of a file come from."""

    def ask(self, question: PullFile) -> None:
        """Say what is wanted, once. Raises `Unreachable` if nobody is there."""
        ...

    def read_into(self, buffer: memoryview) -> int:
        """Put the next bytes there, and return how many; none when the stream has come to its end.

        Raises `Unreachable` if the stream breaks off or is silent for too long, and another `TransportError` if the
        other end does not give what was asked for.
        """
        ...


class Fetched(NamedTuple):
    """All of a segment is in its file, and checked block by block."""

    transfer: int


class Interrupted(NamedTuple):
    """The stream broke off; what came before is kept."""

    transfer: int
    reason: str
    progressed: bool


class Withheld(NamedTuple):
    """The source does not give it."""

    transfer: int
    reason: str


class Installed(NamedTuple):
    """A segment is part of the log, or finished and ready to be part of the staged one."""

    transfer: int
    info: SegmentInfo
    staged: bool
    configuration: Configuration | None
    """The last one in it, if there is one."""
    sessions: Sessions
    """Whose requests are in it; complete from its beginning on, unless there are holes."""


class Refused(NamedTuple):
    """What came is damaged or does not fit, or the disk does not take it."""

    transfer: int
    reason: str


Taken = Fetched | Interrupted | Withheld | Installed | Refused


class Taker:
    """The segment that is on its way, if one is."""

    def __init__(self, log: Log, codec: BlockCodec, sessions_max: int) -> None:
        self._log = log
        self._codec = codec
        self._sessions_max = sessions_max
        self._sessions = Sessions(1, sessions_max)
        self._incoming: Incoming | None = None
        self._offer: SegmentOffer | None = None
        self._configuration: Configuration | None = None

    @property
    def taken(self) -> int:
        """How many bytes of the segment have come; for any thread."""
        incoming = self._incoming
        return incoming.taken if incoming is not None else 0

    def fetch(self, step: FetchSegment, stream: Stream) -> Taken:
        """Take a segment from a stream, or the rest of one of which a part is here."""
        try:
            incoming = self._begin(step.offer)
            before = incoming.taken
            try:
                self._fill(incoming, step, stream)
            except Unreachable as error:
                return Interrupted(step.transfer, str(error), incoming.taken > before)
        except TransportError as error:
            self.drop()
            return Withheld(step.transfer, str(error))
        except (SiriusError, OSError) as error:
            self.drop()
            return Refused(step.transfer, str(error))
        return Fetched(step.transfer)

    def _begin(self, offer: SegmentOffer) -> Incoming:
        if self._incoming is None or self._offer != offer:
            self.drop()
            self._incoming, self._offer = self._log.receive(Part(*offer)), offer
            self._configuration = None
            self._sessions = Sessions(offer.first, self._sessions_max)
        return self._incoming

    def _fill(self, incoming: Incoming, step: FetchSegment, stream: Stream) -> None:
        segment, offset = step.offer.id, step.offer.offset + incoming.taken
        stream.ask(PullFile(segment, offset, incoming.left, step.position))
        while incoming.left:
            with incoming.room() as room:
                came = stream.read_into(room)
            if not came:
                raise TransportError(f"the file of segment {segment} ends early")
            if blocks := incoming.filled(came):
                self._look(blocks)

    def _look(self, blocks: Sequence[Block]) -> None:
        """Note what consensus wants to know of them: all at once where they are small."""
        if sum(block.count for block in blocks) < _SMALL_BLOCK * len(blocks):
            blocks = [self._codec.join(blocks)]
        for block in blocks:
            content = self._codec.content(block)
            self._sessions.learn(content, block.last)
            self._configuration = content.configuration or self._configuration

    def install(self, step: InstallSegment) -> Taken:
        """Make a complete segment part of the log."""
        try:
            if self._incoming is None:
                raise SiriusError("there is no segment that this belongs to")
            info = self._incoming.finish()
            if not step.staged:
                self._log.install(info)
        except (SiriusError, OSError) as error:
            self.drop()
            return Refused(step.transfer, str(error))
        self._incoming = None
        return Installed(step.transfer, info, step.staged, self._configuration, self._sessions)

    def drop(self) -> None:
        """Forget what has come. What cannot be removed is swept away when the log is opened again."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            with suppress(OSError):
                incoming.discard()
