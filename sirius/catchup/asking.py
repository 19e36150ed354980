"""Whom to ask for what, and what to do when it does not work.

Three states keep to one source: a **transfer** of whole segments when far behind, a **resync** below everybody's
tombstone floor, which has a tail of its own, and a **stream** at the tip. The first two are given up, all of it, when
their source fails several times, and begin again with another. Otherwise any source will do: one that cannot help is
shunned, and another one asked at once; when nobody is left the round is over, and the waits grow.
"""

from __future__ import annotations

from sirius.catchup.context import Context
from sirius.catchup.effects import AbandonResync, BeginResync
from sirius.catchup.messages import Pull, PullSegments, Segments, Standing
from sirius.catchup.ranges import Tail
from sirius.catchup.regions import Region
from sirius.catchup.resync import Floors, Resyncing
from sirius.catchup.rounds import Question, Rounds
from sirius.catchup.segments import Transfer
from sirius.catchup.sources import Source, Sources
from sirius.catchup.stream import Stream
from sirius.catchup.upstream import Upstream
from sirius.catchup.window import Window
from sirius.types import Seq


class Asking:
    """The state of a puller."""

    def __init__(
        self,
        context: Context,
        sources: Sources,
        region: Region,
        tail: Tail,
    ) -> None:
        self.context, self.region = context, region
        self.main = tail
        """The end of the log."""
        self.known = tail.position
        """The highest slot of which this node has heard that it is decided."""
        self.stream: Stream | None = None
        self.resync: Resyncing | None = None
        self.transfer: Transfer | None = None
        self.rounds = Rounds(context)
        self.window = Window(context.config)
        self.upstream = Upstream(context)
        self.floors = Floors(context)
        self._sources = sources
        self._attempts = 0
        self._ranges_until = 0
        self._transfers = 0
        self._moved_at = context.now

    @property
    def tail(self) -> Tail:
        """What grows now: the log, or the staged one."""
        return self.resync.tail if self.resync else self.main

    @property
    def is_behind(self) -> bool:
        return self.main.position < self.known

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has come for long although there is more."""
        waited = self.context.now - self._moved_at
        return self.is_behind and waited >= self.context.config.region_patience_s

    @property
    def pinned(self) -> Source | None:
        """The source that cannot be replaced by another now."""
        holder = self.resync or self.transfer
        return holder.source if holder else None

    @property
    def waits_for_driver(self) -> bool:
        installing = self.transfer is not None and self.transfer.is_installing
        return installing or (self.resync is not None and self.resync.is_finishing)

    @property
    def allowed(self) -> list[Source]:
        return self.region.allowed(is_stuck=self.is_stuck)

    def heard(self, known: Seq) -> None:
        """Somebody says that everything up to here is decided."""
        if known > self.known:
            if not self.is_behind:
                self._moved_at = self.context.now
            self.known = known
            self.rounds.hurry(self.context.config.gap_patience_s)

    def moved(self) -> None:
        """The position is higher than it was."""
        self._moved_at = self.context.now
        self.known = max(self.known, self.main.position)

    # ------------------------------------------------------------------ asking

    def begin_if_due(self) -> None:
        """Begin a round, unless a stream brings everything, and none from nearer by could."""
        if not self.rounds.is_due or self.waits_for_driver:
            return
        nearer = self._nearer()
        is_needed = self.stream is None or self.is_behind or self.region.is_probe_due
        if not is_needed and nearer is None:
            return
        source = self.pinned or self.region.probe() or nearer
        source = source or (self.stream.source if self.stream else None)
        if source is not None:
            self.ask(source)
        elif not self._ask_fresh():
            # Everybody is shunned, which is no reason to give up.
            anybody = self._sources.choose(self.allowed)
            self.ask(anybody) if anybody else self.rounds.rest()

    def _nearer(self) -> Source | None:
        """A source that should bring what is new instead of the present one. That goes on until this one answers."""
        return self._sources.nearer(self.stream.source, self.allowed) if self.stream else None

    def ask(self, source: Source) -> None:
        if self.transfer is None:
            self.rounds.ask(source, self._question(source))
        else:
            self._fetch(self.transfer)

    def _fetch(self, transfer: Transfer) -> None:
        """Have the segment sent, unless it is on its way or it is time to wait."""
        if self.rounds.is_due and transfer.is_resting:
            self.context.out.segments.append(transfer.fetch(self.tail.position))

    def begin_transfer(self, source: Source, answer: Segments) -> None:
        """Take the segments that were offered. Until they are here nothing else may grow the log, so no stream."""
        self._transfers += 1
        self.stream = None
        staged = self.resync is not None
        self.transfer = Transfer(self._transfers, source, answer, staged=staged)

    def ask_another(self, source: Source) -> None:
        """This one cannot help."""
        self.shun(source)
        self.give_up(f"{source.member.name} cannot help")
        if not self._ask_fresh():
            self.rounds.back_off()

    def _ask_fresh(self) -> bool:
        """Ask one that is not shunned. If there is none, or it takes too long to find one, think of a resync."""
        source = self._sources.fresh(self.allowed)
        if source is None or self.floors.is_patience_over:
            source = self._begin_resync() or source
        if source is not None:
            self.ask(source)
        return source is not None

    def _question(self, source: Source) -> Question:
        tail, config, request = self.tail, self.context.config, self.rounds.next_request()
        first, era = Seq(tail.position + 1), tail.era_of(source.node)
        last = tail.position + self.window.slots
        if 0 < config.segment_slots < self.known - tail.position:
            if tail.position >= self._ranges_until:
                return PullSegments(request, first, era)
            last = min(last, self._ranges_until)
        return Pull(request, first, Seq(last), self.window.bytes, era)

    def use_ranges(self, until: int | None = None) -> None:
        """Ask for no segments before this is reached, or before one range has come."""
        self._ranges_until = until or self.tail.position + self.window.slots

    # ------------------------------------------------------------------ failing

    def succeeded(self) -> None:
        self._attempts = 0
        self.rounds.succeeded()
        self._sources.succeeded()

    def lost(self, source: Source) -> None:
        """No answer came."""
        self.window.shrink()
        self._attempts += 1
        if self.pinned is None or self._attempts >= self.context.config.attempts_max:
            self._leave(source)
        self.rounds.back_off()

    def _leave(self, source: Source) -> None:
        """Nothing comes of it. If that was a file of a resync, see first whether ranges do."""
        if self.resync and self.transfer:
            self._attempts = 0
            self.drop_transfer()
            return
        self.give_up(f"{source.member.name} does not answer")
        self.shun(source)

    def shun(self, source: Source) -> None:
        self._sources.shun(source)
        if self.stream and self.stream.source == source:
            self.stream = None

    def give_up(self, reason: str) -> None:
        """Leave the source that cannot be replaced, and what came of it so far."""
        self._attempts = 0
        self.drop_transfer()
        if self.resync:
            self.floors.failed(self.resync.source)
            self.resync = None
            self.rounds.forget()
            self._ranges_until = 0
            self.context.out.resync.append(AbandonResync(reason))

    def drop_transfer(self) -> None:
        if self.transfer:
            self.context.out.segments.append(self.transfer.drop())
            self.transfer = None

    def below_floor(self, source: Source, standing: Standing) -> None:
        """What the source has does not fit behind the log. Another one may have kept more."""
        if self.resync is None:
            self.floors.note(source, standing)
        self.ask_another(source)

    def _begin_resync(self) -> Source | None:
        """Begin with one of the sources below whose floors this node is, if there is one."""
        source = self._sources.choose(self.floors.candidates(self.main.position, self.allowed))
        if source is not None:
            standing = self.floors.standing_of(source)
            self.floors.clear()
            self.stream = None
            self._ranges_until = 0
            self.resync = Resyncing(source, standing)
            self.context.out.resync.append(BeginResync(source.member, standing.edition.floor))
        return source
