"""The feeder: answers those who pull from this node.

It declares only what it has in hand. Recent ranges come from a cache; for all others the driver reads the log, a
bounded number of reads at a time, one a puller, and says what it found or that it could not. A range that cannot be
read is "unavailable", never empty. Files go their own way, from disk into a stream; here it is only noted for whom.

**Deletes.** A range is given to whom it fits: who is at 0, or at or above the tombstone floor, or has all it has from
this very era of this log (`sirius.catchup.ranges`). Everybody else is told to resync. This is judged by the edition
of the log *that was read*, once more when the read is done: a compaction pass may end in between. Values from the
cache are handed out from the floor on alone, where the edition does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sirius.catchup.cache import Cache, fitted
from sirius.catchup.context import Context
from sirius.catchup.effects import ListSegments, Read, ReadRange
from sirius.catchup.followers import Followers
from sirius.catchup.messages import (
    Busy,
    Edition,
    Path,
    Pull,
    PullFile,
    PullSegments,
    Range,
    Resync,
    SegmentOffer,
    Segments,
    Standing,
    Subscribe,
    Unavailable,
)
from sirius.catchup.ranges import Start, coverage_fault
from sirius.catchup.subscribers import Subscribers
from sirius.errors import InvariantViolation
from sirius.paxos.members import Member
from sirius.paxos.values import Value
from sirius.types import Seq

_Question = Pull | PullSegments


class _Reading(NamedTuple):
    member: Member
    question: _Question
    effect: Read


class Feeder:
    """One a node. `whole` and `path` are those of its puller."""

    def __init__(
        self,
        context: Context,
        log: Start,
        whole: Callable[[], Seq],
        path: Callable[[], Path],
    ) -> None:
        self._context = context
        self._whole, self._path = whole, path
        self.tip = log.position
        self.edition = log.edition
        self.followers = Followers(context)
        self._cache = Cache(context.config, log.position)
        self.subscribers = Subscribers(context, self._cache, self.standing)
        self._readings: dict[int, _Reading] = {}
        self._reads = 0

    def standing(self) -> Standing:
        return Standing(self.tip, max(self.tip, self._whole()), self.edition, self._path())

    # ------------------------------------------------------------------ news from this node

    def tick(self) -> None:
        self.followers.expire()
        self.subscribers.tick()

    def advanced(self, values: Sequence[Value]) -> None:
        """The log has grown."""
        fault = coverage_fault(values[0].first, values[-1].last, values)
        if fault or values[0].first > self.tip + 1:
            raise InvariantViolation(fault or f"{values[0].first} does not follow {self.tip}")
        for value in values:
            if value.last > self.tip:
                self._cache.add(fitted(value, self.tip + 1, value.last))
                self.tip = value.last
        self.subscribers.serve()

    def jump(self, tip: Seq) -> None:
        """The log has grown by something that did not come as values."""
        if tip > self.tip:
            self.tip = tip
            self._cache.clear(tip)
            self.subscribers.serve()

    def replaced(self, tip: Seq, edition: Edition) -> None:
        """The log is another one."""
        self.edition = edition
        self.jump(tip)

    def compacted(self, edition: Edition) -> None:
        """The log has dropped deletes. The floor never falls."""
        self.edition = edition._replace(floor=max(edition.floor, self.edition.floor))

    def raise_floor(self, floor: Seq) -> None:
        """Deletes up to here are missing in what comes next; none was dropped that was here."""
        self.compacted(self.edition._replace(floor=floor))

    # ------------------------------------------------------------------ questions

    def pull(self, sender: Member, message: Pull) -> None:
        self.followers.register(sender, Seq(message.first - 1))
        config, first = self._context.config, message.first
        last = min(message.last, first + config.range_slots_max - 1, self.tip)
        bytes_max = min(message.bytes_max, config.range_bytes_max)
        if not self._fits(message, self.edition):
            self._context.send(sender, Resync(message.request, self.standing()))
        elif first > self.tip:
            self._give(sender, message, (), self.edition)
        elif max(self._cache.first, self.edition.floor + 1) <= first:
            self._give(sender, message, self._cache.range(first, last, bytes_max), self.edition)
        else:
            self._read(sender, message, ReadRange(self._reads, first, Seq(last), bytes_max))

    def pull_segments(self, sender: Member, message: PullSegments) -> None:
        self.followers.register(sender, Seq(message.first - 1))
        if not self._fits(message, self.edition):
            self._context.send(sender, Resync(message.request, self.standing()))
        else:
            segments_max = self._context.config.segments_max
            self._read(sender, message, ListSegments(self._reads, message.first, segments_max))

    def pull_file(self, sender: Member, message: PullFile) -> None:
        """Somebody takes a file: deletes behind it are kept meanwhile."""
        self.followers.register(sender, message.position)

    def subscribe(self, sender: Member, message: Subscribe) -> None:
        self.followers.register(sender, message.after)
        self.subscribers.subscribe(sender, message)

    def _fits(self, question: Pull | PullSegments, edition: Edition) -> bool:
        position = question.first - 1
        return position == 0 or position >= edition.floor or question.era == edition.era

    def _read(self, sender: Member, question: _Question, effect: Read) -> None:
        mine = [each.question for each in self._readings.values() if each.member == sender]
        if question in mine:
            return  # the network has repeated it
        if mine or len(self._readings) >= self._context.config.reads_max:
            busy = Busy(question.request, self._context.config.busy_retry_s)
            self._context.send(sender, busy)
            return
        self._readings[self._reads] = _Reading(sender, question, effect)
        self._reads += 1
        self._context.out.read.append(effect)

    # ------------------------------------------------------------------ the driver's word

    def found(self, read: int, values: Sequence[Value], edition: Edition) -> None:
        """Answer with values that were read from that edition of the log."""
        member, question, effect = self._done(read)
        if not isinstance(question, Pull) or not isinstance(effect, ReadRange) or not values:
            raise InvariantViolation(f"{len(values)} values are no answer to {effect}")
        last = values[-1].last
        if fault := coverage_fault(effect.first, min(last, effect.last), values):
            raise InvariantViolation(f"{effect}: {fault}")
        if self._fits(question, edition):
            self._give(member, question, tuple(values), edition)
        else:
            self._context.send(member, Resync(question.request, self._standing_of(edition)))

    def listed(self, read: int, offers: Sequence[SegmentOffer], edition: Edition) -> None:
        """Answer with the segments that this edition of the log has."""
        member, question, effect = self._done(read)
        if not isinstance(question, PullSegments):
            raise InvariantViolation(f"segments are no answer to {effect}")
        standing = self._standing_of(edition)
        if self._fits(question, edition):
            self._context.send(member, Segments(question.request, tuple(offers), standing))
        else:
            self._context.send(member, Resync(question.request, standing))

    def unreadable(self, read: int, reason: str) -> None:
        """Answer that it cannot be read here."""
        member, question, _ = self._done(read)
        self._context.send(member, Unavailable(question.request, reason, self.standing()))

    def _done(self, read: int) -> _Reading:
        if read not in self._readings:
            raise InvariantViolation(f"read {read} was not asked for, or is done")
        return self._readings.pop(read)

    def _give(
        self, member: Member, question: Pull, values: tuple[Value, ...], edition: Edition
    ) -> None:
        last = values[-1].last if values else Seq(question.first - 1)
        standing = self._standing_of(edition)
        self._context.send(member, Range(question.request, question.first, last, values, standing))

    def _standing_of(self, edition: Edition) -> Standing:
        return self.standing()._replace(edition=edition)
