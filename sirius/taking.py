"""Segments on their way into the log: what catch-up asks for, done on the disk.

The counterpart of `sirius.feeding`. The steps are done one after the other, in their order, and on any one thread but
the engine's: they write, check and sync. The outcome of each goes back to the engine's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sirius.catchup.effects import InstallSegment, SegmentStep, WritePart
from sirius.catchup.messages import SegmentOffer
from sirius.codec import BlockCodec
from sirius.errors import SiriusError
from sirius.paxos.members import Configuration
from sirius.paxos.sessions import Sessions
from sirius.wal import Block, Log, SegmentInfo
from sirius.wal.incoming import Incoming
from sirius.wal.parts import Part

_SMALL_BLOCK: Final = 64
"""Below so many entries a block, looking at many blocks together is cheaper."""


class Written(NamedTuple):
    """A part is in its file, as far as it makes whole blocks."""

    transfer: int


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


Taken = Written | Installed | Refused


class Taker:
    """The segment that is on its way, if one is."""

    def __init__(self, log: Log, codec: BlockCodec, sessions_max: int) -> None:
        self._log = log
        self._codec = codec
        self._sessions_max = sessions_max
        self._sessions = Sessions(1, sessions_max)
        self._incoming: Incoming | None = None
        self._configuration: Configuration | None = None
        self._refused = 0
        """The transfer of which nothing more is taken."""

    def take(self, step: SegmentStep) -> Taken | None:
        """Do a step. After a refusal the steps of that transfer that were under way come to nothing."""
        if step.transfer == self._refused:
            return None
        try:
            if isinstance(step, WritePart):
                return self._write(step)
            if isinstance(step, InstallSegment):
                return self._install(step)
            self._drop()
        except (SiriusError, OSError) as error:
            self._drop()
            self._refused = step.transfer
            return Refused(step.transfer, str(error))
        return None

    def _write(self, step: WritePart) -> Written:
        if step.offset == 0:
            self._drop()
            self._incoming = self._log.receive(_part(step.offer))
            self._configuration = None
            self._sessions = Sessions(step.offer.first, self._sessions_max)
        self._look(self._held().write(step.data))
        return Written(step.transfer)

    def _look(self, blocks: Sequence[Block]) -> None:
        """Note what consensus wants to know of them: all at once where they are small."""
        if sum(block.count for block in blocks) < _SMALL_BLOCK * len(blocks):
            blocks = [self._codec.join(blocks)]
        for block in blocks:
            content = self._codec.content(block)
            self._sessions.learn(content, block.last)
            self._configuration = content.configuration or self._configuration

    def _install(self, step: InstallSegment) -> Installed:
        incoming = self._held()
        info = incoming.finish()
        if not step.staged:
            self._log.install(info)
        self._incoming = None
        return Installed(step.transfer, info, step.staged, self._configuration, self._sessions)

    def _held(self) -> Incoming:
        if self._incoming is None:
            raise SiriusError("there is no segment that this belongs to")
        return self._incoming

    def _drop(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.discard()


def _part(offer: SegmentOffer) -> Part:
    return Part(*offer)
