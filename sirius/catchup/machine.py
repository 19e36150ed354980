"""One node's catch-up machine: messages, time and news go in, effects come out.

It does nothing by itself: no clock, no disk, no network, no thread. The driver calls it, one call at a time, and does
what the effects say in their order (`sirius.catchup.effects`). See the package for the theory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from sirius.catchup.asking import Asking
from sirius.catchup.config import CatchupConfig
from sirius.catchup.context import Context
from sirius.catchup.effects import Effects
from sirius.catchup.feeder import Feeder
from sirius.catchup.messages import (
    Busy,
    Edition,
    Here,
    Message,
    Path,
    Pull,
    PullFile,
    PullSegments,
    Push,
    Range,
    Resync,
    SegmentOffer,
    Segments,
    Subscribe,
    Unavailable,
)
from sirius.catchup.puller import Puller
from sirius.catchup.ranges import Basis, Start, Tail
from sirius.catchup.regions import Region
from sirius.catchup.segments import Progress
from sirius.catchup.sources import Source, Sources
from sirius.paxos.members import Member
from sirius.paxos.values import Value
from sirius.types import Seq


class Catchup:
    """The catch-up of one node, both ends of it. Not thread-safe: one loop owns it."""

    def __init__(
        self,
        me: Member,
        config: CatchupConfig,
        rng: random.Random,
        now: float,
        log: Start | None = None,
        region: str = "",
    ) -> None:
        log = log or Start()
        context = Context(me, config, rng, now)
        self._context = context
        self._sources = Sources(context)
        self._region = Region(context, region, self._sources)
        self._feeder = Feeder(context, log, self._whole, self._path)
        asking = Asking(context, self._sources, self._region, Tail(log))
        self._asking, self._puller = asking, Puller(asking)
        puller, feeder = self._puller, self._feeder
        self._handlers: dict[type[Message], Callable[[Member, Any], None]] = {
            Pull: feeder.pull,
            PullSegments: feeder.pull_segments,
            PullFile: feeder.pull_file,
            Subscribe: feeder.subscribe,
            Range: puller.range,
            Segments: puller.segments,
            Unavailable: puller.unavailable,
            Resync: puller.below_floor,
            Busy: puller.busy,
            Push: puller.push,
            Here: self._here,
        }

    # ------------------------------------------------------------------ what it knows

    @property
    def position(self) -> Seq:
        """Everything up to here was handed out. Never falls."""
        return self._asking.main.position

    @property
    def known(self) -> Seq:
        """The highest slot of which this node has heard that it is decided."""
        return self._asking.known

    @property
    def window_slots(self) -> int:
        """How many slots the next request asks for."""
        return self._asking.window.slots

    @property
    def is_voter(self) -> bool:
        """Whether this node votes, as far as it was told."""
        return self._context.is_voter

    @property
    def whole(self) -> Seq:
        """From here on the state is that of one moment; before, some keys may be older than others, or missing."""
        return self._asking.main.whole

    @property
    def basis(self) -> Basis | None:
        """Where all of the log came from, if all came from one source.

        A driver may keep it, to go on after a restart (`Start`). It has to be withdrawn on disk before anything is
        appended that came with a call after which it is another one.
        """
        return self._asking.main.basis

    @property
    def path(self) -> Path:
        """The nodes through which entries come to this one, which is the last."""
        return self._puller.path

    @property
    def lowest_position(self) -> Seq | None:
        """How far the slowest follower is: compaction keeps the deletes behind it. None: nobody follows."""
        return self._feeder.followers.lowest

    @property
    def followers(self) -> dict[str, Seq]:
        """Who follows this node, and how far each is."""
        return self._feeder.followers.positions

    @property
    def source(self) -> Member | None:
        """Whose stream brings what is new, if one does."""
        return self._asking.stream.source.member if self._asking.stream else None

    @property
    def is_resyncing(self) -> bool:
        """Whether the whole log is being taken anew. The node must not vote on what it has not got."""
        return self._asking.resync is not None

    @property
    def progress(self) -> Progress | None:
        """How much of the segments that are being taken is installed; None if none are."""
        return self._puller.progress

    @property
    def pulls_for_region(self) -> bool:
        """Whether this node pulls from other regions for the others of its own."""
        return self._region.pulls_outside

    # ------------------------------------------------------------------ what goes in

    def step(self, sender: Member, message: Message) -> Effects:
        """Take a message of this cluster that was meant for this life of the node."""
        self._handlers[type(message)](sender, message)
        return self._effects()

    def at(self, now: float) -> None:
        """Say what time it is, before any call but `tick`: a message may come long after the last one."""
        self._context.now = max(self._context.now, now)

    def tick(self, now: float) -> Effects:
        """Let time pass, and do what is due. Call it several times per `retry_s`."""
        self.at(now)
        self._region.tick(self.position)
        self._feeder.tick()
        self._puller.tick()
        return self._effects()

    def advanced(self, values: Sequence[Value]) -> Effects:
        """The log has grown by these, whether consensus or this machine brought them, and without a gap."""
        if values:
            self._feeder.advanced(values)
            self._puller.advanced(values[-1].last)
        return self._effects()

    def heard(self, known: Seq) -> Effects:
        """Consensus has heard that everything up to here is decided."""
        self._asking.heard(known)
        return self._effects()

    def set_sources(self, sources: Sequence[Source]) -> Effects:
        """Say who may be asked from now on. A node that had nobody to ask asks at once."""
        had_some = bool(self._sources.all)
        self._sources.replace(sources)
        if not had_some:
            self._asking.rounds.hurry(0)
        return self._effects()

    def set_voter(self, is_voter: bool) -> Effects:
        """Say whether this node votes. A voter pulls what it misses, and subscribes to nobody."""
        self._context.is_voter = is_voter
        return self._effects()

    def compacted(self, edition: Edition) -> Effects:
        """The log has dropped deletes. Call it before the next read of the log is answered."""
        self._feeder.compacted(edition)
        return self._effects()

    # ------------------------------------------------------------------ the driver's answers

    def found(self, read: int, values: Sequence[Value], edition: Edition) -> Effects:
        """Answer `ReadRange`: values from `first` on without a gap, and the edition of the log they were read from."""
        self._feeder.found(read, values, edition)
        return self._effects()

    def listed(self, read: int, offers: Sequence[SegmentOffer], edition: Edition) -> Effects:
        """Answer `ListSegments`: segments that follow each other; maybe none."""
        self._feeder.listed(read, offers, edition)
        return self._effects()

    def unreadable(self, read: int, reason: str) -> Effects:
        """Answer any read: corrupt, quarantined, not there, not written yet."""
        self._feeder.unreadable(read, reason)
        return self._effects()

    def fetched(self, transfer: int) -> Effects:
        """Answer `FetchSegment`: all of it is there."""
        self._puller.fetched(transfer)
        return self._effects()

    def interrupted(self, transfer: int, *, progressed: bool) -> Effects:
        """Answer `FetchSegment`: the stream broke off, or never began. `progressed`: something has come before."""
        self._puller.interrupted(transfer, progressed=progressed)
        return self._effects()

    def withheld(self, transfer: int) -> Effects:
        """Answer `FetchSegment`: the source does not give it, as compaction has put another in its place."""
        self._puller.withheld(transfer)
        return self._effects()

    def installed(self, transfer: int) -> Effects:
        """Answer `InstallSegment`: it is on disk, and consensus and the application know what is in it."""
        last = self._puller.installed(transfer)
        if last is not None:
            self._feeder.jump(last)
        return self._effects()

    def refused(self, transfer: int) -> Effects:
        """Answer `FetchSegment` or `InstallSegment`: what came is damaged or does not fit, or there is no room for it.
        `DropSegment` follows, unless the transfer was given up before."""
        self._puller.refused(transfer)
        return self._effects()

    def resynced(self, edition: Edition) -> Effects:
        """Answer `FinishResync`: the staged log is the log, consensus and the application stand where it ends.

        The log's era is one that it never had before: who took a part of the old one must not go on with this one.
        """
        self._feeder.replaced(self._puller.resynced(), edition)
        return self._effects()

    def resync_failed(self, reason: str) -> Effects:
        """Answer `FinishResync`: the log is what it was."""
        self._puller.resync_failed(reason)
        return self._effects()

    # ------------------------------------------------------------------ inside

    def _effects(self) -> Effects:
        out, self._context.out = self._context.out, Effects()
        if out.floor > self._feeder.edition.floor:
            self._feeder.raise_floor(out.floor)
        else:
            out.floor = Seq(0)
        return out

    def _here(self, sender: Member, message: Here) -> None:
        self._region.here(sender, message)
        self._asking.heard(message.position)

    def _whole(self) -> Seq:
        return self._asking.main.whole

    def _path(self) -> Path:
        return self._puller.path
