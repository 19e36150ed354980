"""The puller: gets what is missing.

After the Sirius paper, section 5.1. A round begins periodically, or early when a slot is known to be decided and is
not here. It asks one source, random or near, for a range from the first missing slot on. If the source has more, the
next range is asked of it at once; else the round is over, and a follower that is level with all it has heard of
subscribes to the source. What a range proves is judged in `ranges`; nothing else moves the position.

"The source has more" is read off the tip in its answer. The paper asks until an answer is not full; that comes to the
same, but for one question less.
"""

from __future__ import annotations

from collections.abc import Sequence

from sirius.catchup.asking import Asking
from sirius.catchup.effects import FinishResync, Stage
from sirius.catchup.messages import (
    Busy,
    Edition,
    Path,
    Pull,
    PullSegments,
    Push,
    Range,
    Resync,
    Segments,
    Standing,
    Unavailable,
)
from sirius.catchup.ranges import coverage_fault, range_fault
from sirius.catchup.resync import Resyncing
from sirius.catchup.segments import Progress, Transfer, offer_fault
from sirius.catchup.sources import Source
from sirius.catchup.stream import Stream
from sirius.errors import InvariantViolation
from sirius.paxos.members import Member
from sirius.paxos.values import Value
from sirius.types import Seq


class Puller:
    """One a node: takes answers and pushes, and the driver's word."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._context = asking.context
        self._rounds = asking.rounds

    @property
    def path(self) -> Path:
        return self._asking.upstream.path

    # ------------------------------------------------------------------ time and news

    def tick(self) -> None:
        if lost := self._rounds.expired():
            self._asking.lost(lost.source)
        self._watch_stream()
        self._asking.begin_if_due()

    def _watch_stream(self) -> None:
        asking, stream = self._asking, self._asking.stream
        if stream is None:
            return
        if stream.is_silent or asking.is_stuck:
            asking.shun(stream.source)
        elif self._context.is_voter or stream.source not in asking.allowed:
            asking.stream = None
        else:
            stream.renew_if_due(asking.main.position)

    def advanced(self, last: Seq) -> None:
        """The log goes up to here, by whatever came."""
        asking, transfer, resync = self._asking, self._asking.transfer, self._asking.resync
        if last <= asking.main.position:
            return
        if transfer and transfer.is_installing and not resync and last <= transfer.offer.last:
            return  # that is the segment itself, and `installed` will say so
        asking.main.skip(last)
        asking.moved()
        if asking.waits_for_driver:
            return
        if resync and asking.main.position >= resync.floor:
            asking.give_up("the log got past the floor by itself")
        elif transfer and not resync:
            asking.drop_transfer()

    # ------------------------------------------------------------------ answers

    def range(self, sender: Member, message: Range) -> None:
        asking = self._asking
        asked = self._rounds.answered(sender, message.request, Pull)
        if asked is None or not self._accepts(asked.source, message.standing):
            return
        if range_fault(asked.question, message):
            asking.ask_another(asked.source)
        elif not asking.tail.fits(sender.node, message.standing.edition):
            asking.below_floor(asked.source, message.standing)
        else:
            if self._rounds.is_prompt(asked) and message.last < message.standing.tip:
                asking.window.grow()
            self._deliver(asked.source, message.values, message.standing)
            self._go_on(asked.source, message.standing, progressed=bool(message.values))

    def segments(self, sender: Member, message: Segments) -> None:
        asking, offers = self._asking, message.offers
        asked = self._rounds.answered(sender, message.request, PullSegments)
        if asked is None or not self._accepts(asked.source, message.standing):
            return
        if offer_fault(asked.question.first, offers, message.standing.tip):
            asking.ask_another(asked.source)
        elif not asking.tail.fits(sender.node, message.standing.edition):
            asking.below_floor(asked.source, message.standing)
        else:
            if offers and offers[0].first == asking.tail.position + 1:
                asking.begin_transfer(asked.source, message)
            else:
                asking.use_ranges(offers[0].first - 1 if offers else None)
            asking.ask(asked.source)

    def unavailable(self, sender: Member, message: Unavailable) -> None:
        asked = self._rounds.answered_any(sender, message.request)
        if asked is None or not self._accepts(asked.source, message.standing):
            return
        if isinstance(asked.question, Pull):
            self._asking.ask_another(asked.source)
        else:
            self._do_without_files(asked.source)

    def _do_without_files(self, source: Source) -> None:
        """Compaction has put others in the place of these segments, or there are none: ranges always work."""
        self._asking.drop_transfer()
        self._asking.use_ranges()
        self._asking.ask(source)

    def below_floor(self, sender: Member, message: Resync) -> None:
        asked = self._rounds.answered_any(sender, message.request)
        if asked is not None and self._accepts(asked.source, message.standing):
            self._asking.below_floor(asked.source, message.standing)

    def busy(self, sender: Member, message: Busy) -> None:
        if self._rounds.answered_any(sender, message.request):
            self._rounds.wait(message.retry_s)

    def push(self, sender: Member, message: Push) -> None:
        asking, stream, standing = self._asking, self._asking.stream, message.standing
        if stream is None or stream.source.member != sender:
            return
        if not asking.upstream.accepts(standing.path):
            asking.shun(stream.source)
            return
        self._welcome(stream.source, standing)
        stream.heard()
        rest = asking.main.rest_of(message.values)
        if self._continues(rest) and asking.main.fits(sender.node, standing.edition):
            stream.took(sum(len(value) for value in message.values))
            self._deliver(stream.source, rest, standing)
        if asking.is_behind:
            self._rounds.hurry(0)
            asking.begin_if_due()
        stream.renew_if_due(asking.main.position)

    def _continues(self, values: Sequence[Value]) -> bool:
        position = self._asking.main.position
        return bool(values) and coverage_fault(position + 1, values[-1].last, values) is None

    def _accepts(self, source: Source, standing: Standing) -> bool:
        """Refuse a source that follows this node; the next one is asked then."""
        if self._asking.upstream.accepts(standing.path):
            self._welcome(source, standing)
            return True
        self._asking.ask_another(source)
        return False

    def _welcome(self, source: Source, standing: Standing) -> None:
        if standing.tip >= self._asking.main.position:
            # Who is behind gives nothing, and may need what this node has: it must not find itself above it.
            self._asking.upstream.follow(standing.path)
        self._asking.region.answered(source)
        self._asking.heard(standing.tip)

    # ------------------------------------------------------------------ what follows from an answer

    def _deliver(self, source: Source, values: Sequence[Value], standing: Standing) -> None:
        """Hand on what is new; the values are proven, and fit."""
        rest = self._asking.tail.rest_of(values)
        if not rest:
            return
        self._raise_floor(standing.edition)
        self._advance(source, standing, rest[-1].last)
        if self._asking.resync:
            self._context.out.resync.append(Stage(tuple(rest)))
        else:
            self._context.out.learned += rest

    def _raise_floor(self, edition: Edition) -> None:
        """What comes next lacks deletes up to the source's floor, if it lies below that."""
        asking, out = self._asking, self._context.out
        if asking.tail.position >= edition.floor:
            return
        if asking.resync:
            asking.resync.raise_floor(edition.floor)
        else:
            out.floor = max(out.floor, edition.floor)

    def _advance(self, source: Source, standing: Standing, last: Seq) -> None:
        asking = self._asking
        asking.tail.take(source.node, standing.edition, last, standing.whole)
        if not asking.resync:
            asking.floors.clear()
            asking.moved()

    def _go_on(self, source: Source, standing: Standing, *, progressed: bool) -> None:
        """Ask the same source for more if it has more; else the round is over."""
        asking = self._asking
        asking.succeeded()
        if asking.resync and asking.resync.is_complete:
            self._finish_resync(asking.resync)
        elif asking.transfer or (progressed and asking.tail.position < standing.tip):
            asking.ask(source)
        elif asking.resync:
            asking.ask_another(source)
        else:
            self._rounds.rest()
            self._subscribe(source)

    def _subscribe(self, source: Source) -> None:
        asking = self._asking
        if self._context.is_voter or asking.is_behind:
            return
        if asking.stream is None or asking.stream.source != source:
            asking.stream = Stream(self._context, source)
        asking.stream.renew(asking.main.position)

    # ------------------------------------------------------------------ the driver's word

    @property
    def progress(self) -> Progress | None:
        """How far the segments are that are being taken, if some are."""
        transfer = self._asking.transfer
        return transfer.progress if transfer else None

    def fetched(self, number: int) -> None:
        """All of a segment is here."""
        if transfer := self._under_way(number):
            self._asking.succeeded()
            self._raise_floor(transfer.standing.edition)
            self._context.out.segments.append(transfer.install())

    def interrupted(self, number: int, *, progressed: bool) -> None:
        """No more comes of the stream. A source that gave something is asked as often as one that never failed.

        If nothing comes in the end, what was offered is taken as ranges: they need no connection of their own.
        """
        if transfer := self._under_way(number):
            transfer.rest()
            if progressed:
                self._asking.succeeded()
            self._asking.use_ranges(transfer.offer.last)
            self._asking.lost(transfer.source)

    def withheld(self, number: int) -> None:
        """The file is gone."""
        if transfer := self._under_way(number):
            self._do_without_files(transfer.source)

    def _under_way(self, number: int) -> Transfer | None:
        """Return the transfer of this number; None if it was given up."""
        transfer = self._asking.transfer
        return transfer if transfer is not None and transfer.number == number else None

    def installed(self, number: int) -> Seq | None:
        """The segment is part of the log; return how far that goes now. None if it is part of the staged one."""
        transfer = self._installing(number)
        last, source = transfer.offer.last, transfer.source
        if self._asking.tail.position < last:
            self._advance(source, transfer.standing, last)
        if not transfer.next():
            self._asking.transfer = None
        self._go_on(source, transfer.standing, progressed=True)
        return None if self._asking.resync else last

    def refused(self, number: int) -> None:
        """What came is no good, or does not fit. What was offered is taken as ranges, which their source checks."""
        if transfer := self._under_way(number):
            transfer.rest()
            self._asking.use_ranges(transfer.offer.last)
            self._asking.ask_another(transfer.source)

    def _installing(self, number: int) -> Transfer:
        transfer = self._under_way(number)
        if transfer is None or not transfer.is_installing:
            raise InvariantViolation(f"no segment of transfer {number} is being installed")
        return transfer

    def _finish_resync(self, resync: Resyncing) -> None:
        resync.is_finishing = True
        self._asking.transfer = None
        self._context.out.resync.append(FinishResync(resync.tail.position, resync.floor))

    def resynced(self) -> Seq:
        """The staged log is the log; return how far it goes."""
        asking, resync = self._asking, self._finishing()
        if resync.tail.position < asking.main.position:
            raise InvariantViolation(
                f"the log went on to {asking.main.position} while one up to "
                f"{resync.tail.position} was put in its place"
            )
        asking.main, asking.resync = resync.tail, None
        asking.moved()
        self._rounds.hurry(0)
        return asking.main.position

    def resync_failed(self, reason: str) -> None:
        """The log is what it was."""
        self._finishing().is_finishing = False
        self._asking.give_up(reason)
        self._rounds.back_off()

    def _finishing(self) -> Resyncing:
        resync = self._asking.resync
        if resync is None or not resync.is_finishing:
            raise InvariantViolation("no resync is being finished")
        return resync
