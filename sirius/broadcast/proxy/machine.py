"""One proxy: messages, publications and the time go in, effects come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.context import Context, Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.history import ANYTHING, History
from sirius.broadcast.messages import (
    Advertise,
    Counts,
    Forward,
    Gossip,
    Message,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
    Subscribe,
    Unsubscribe,
)
from sirius.broadcast.proxy.downstream import Downstream
from sirius.broadcast.proxy.intake import Intake
from sirius.broadcast.proxy.region import Region
from sirius.broadcast.proxy.shelf import Layout, OpenHistory, Shelf
from sirius.broadcast.proxy.upstream import Upstream
from sirius.errors import BadMessage, UsageError
from sirius.types import Seq

Gate = Callable[[Stream], int]
"""Says up to where what was taken of a stream may count."""


class Proxy:
    """A proxy of the region that it is in. Not thread-safe: one loop owns it.

    `streams` says who owns which stream, everywhere; `others` are the other proxies. `life` must be higher than in
    any earlier life of this proxy: the time of day will do.
    """

    def __init__(
        self,
        me: Peer,
        layout: Layout,
        open_history: OpenHistory,
        config: ProxyConfig,
        rng: random.Random,
        *,
        now: float,
        life: int,
    ) -> None:
        self._context = context = Context(me, rng, now)
        self.name, self.config = me, config
        self._others = tuple(peer for peer in layout.proxies if peer != me)
        self._shelf = shelf = Shelf(layout, open_history, config.recent_bytes_max)
        self._intake = Intake(context, config, shelf)
        self._is_head = self._is_tail = True
        self._handlers: dict[type[Message], Callable[[Peer, Any], None]] = {
            Forward: self._forward,
            Publish: self._publish,
        }
        self._begin_upstream(life)
        self._begin_downstream()
        self._gate: Gate = _open
        self._time_us = 0
        self._advertise_at = now
        self.bad_messages = 0
        """How often a peer sent what cannot be."""

    def _begin_upstream(self, life: int) -> None:
        self._upstream = Upstream(self._context, self.config, self._shelf, life)
        self._handlers[Advertise] = self._upstream.advertised

    def _begin_downstream(self) -> None:
        self._downstream = Downstream(self._context, self.config, self._shelf)
        self._region = Region(self._context, self.config.region, self._shelf)
        self._handlers[Subscribe] = self._downstream.subscribe
        self._handlers[Unsubscribe] = self._downstream.unsubscribe
        self._handlers[Gossip] = self._region.view.gossip
        self._handlers[Request] = self._region.request

    # ------------------------------------------------------------------ what it knows

    @property
    def counts(self) -> Counts:
        """How far it is in each stream."""
        return self._shelf.counts

    @property
    def view(self) -> tuple[Peer, ...]:
        """The clients that it knows."""
        return self._region.view.members

    @property
    def under_way(self) -> int:
        """Bytes that were sent and not confirmed, to the subscriber to whom it is most."""
        return self._downstream.under_way

    def source(self, stream: Stream) -> Peer | None:
        """Whom a foreign stream comes from now."""
        return self._upstream.source(stream)

    def history(self, stream: Stream) -> History:
        """The history of a stream, for figures."""
        return self._shelf.books[stream].history

    # ------------------------------------------------------------------ what goes in

    def at(self, now: float, time_us: int) -> None:
        """Say what time it is, by a monotonic clock and of the day, before any other call."""
        self._context.at(now)
        self._time_us = time_us

    def step(self, sender: Peer, message: Message) -> Effects:
        """Take a message. What a proxy has no use for is ignored."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message)
        return self._context.taken()

    def tick(self, now: float, time_us: int) -> Effects:
        """Let time pass, and do what is due. Call it several times per `gap_s`, or as often as messages come."""
        self.at(now, time_us)
        context = self._context
        if self._is_tail and context.now >= self._advertise_at:
            self._advertise_at = context.now + self.config.advertise_s
            context.send_all(self._others, Advertise(self._shelf.counts))
        if self._is_head:
            self._upstream.tick()
        if self._is_tail:
            self._downstream.tick()
            self._region.tick()
        self._settle_all()
        return context.taken()

    def publish(
        self, stream: Stream, batch: EventBatch, publisher: int = 0, serial: int = 0
    ) -> tuple[Published | Refused | None, Effects]:
        """Publish from inside this process. Publisher 0 never repeats himself.

        It is answered at once, unless it does not count at once: then the answer is among the effects of a later
        call.
        """
        me = self._context.me
        answer: Published | Refused | None = self._take(
            me, Publish(stream, publisher, serial, batch)
        )
        effects = self._context.taken()
        if answer is None and effects.answers:
            answer = effects.answers.pop()
        return answer, effects

    def follow_log(self, stream: Stream) -> None:
        """Say that a stream is a log, also before anything of it is here: from now on nobody publishes in it."""
        if self._shelf.owners.get(stream) != self.name:
            raise UsageError(f"stream {stream!r} does not belong to {self.name}")
        self._intake.logs.add(stream)

    def extend(self, stream: Stream, batch: EventBatch) -> Effects:
        """Add what a log says to a stream that is this log: numbered there, and not to be published in here.

        What is known is skipped. Raises `OutOfOrder` behind a gap, and `BadMessage`.
        """
        self.follow_log(stream)
        book = self._shelf.books[stream]
        if batch.last > book.end:
            book.take(batch.behind(book.end))
            self._settle(stream)
        return self._context.taken()

    # ------------------------------------------------------------------ for a chain, or a disk

    @property
    def shelf(self) -> Shelf:
        """What it has of every stream."""
        return self._shelf

    def guard(self, gate: Gate) -> None:
        """Have somebody else say up to where what was taken counts. He calls `settle` when that changes."""
        self._gate = gate

    def settle(self) -> Effects:
        """See what counts by now. Call it when a disk or a chain has got on."""
        self._settle_all()
        return self._context.taken()

    def meet(self, clients: tuple[Peer, ...]) -> None:
        """Take these for clients of the region until they turn out to be none."""
        self._region.view.meet(clients)

    def assume(self, *, head: bool, tail: bool, life: int) -> None:
        """Play other parts: a head takes in what is published and what other proxies have, a tail gives it out.

        What belongs to a part that was not played before begins anew; `life` is higher than with any head before.
        """
        if head and not self._is_head:
            self._begin_upstream(life)
        if not head:
            self._intake.forget()
        if tail and not self._is_tail:
            self._begin_downstream()
        self._is_head, self._is_tail = head, tail

    # ------------------------------------------------------------------ inside

    def _publish(self, sender: Peer, message: Publish) -> None:
        answer = self._take(sender, message)
        if answer is not None:
            self._context.send(sender, answer)

    def _take(self, sender: Peer, message: Publish) -> Refused | None:
        """Take a batch in. What counts at once is answered at once, like everything else that counts now."""
        answer = self._intake.publish(sender, message, self._time_us)
        if message.stream in self._shelf:
            self._settle(message.stream)
        return answer

    def _forward(self, _sender: Peer, message: Forward) -> None:
        """`addRemoteEvent` of the paper: whoever sent it, what comes next is taken."""
        stream, batch = message
        if not self._upstream.is_foreign(stream) or batch.last <= self._shelf.end(stream):
            return
        if batch.first > self._shelf.end(stream) + 1:
            self._upstream.early(stream, batch)
            return
        following: EventBatch | None = batch.behind(self._shelf.end(stream))
        while following is not None and self._append(stream, following):
            following = self._upstream.waiting(stream)
        self._settle(stream)

    def _append(self, stream: Stream, batch: EventBatch) -> bool:
        book = self._shelf.books[stream]
        if book.pending_bytes >= self.config.window_bytes:
            return False
        try:
            book.take(batch)
        except BadMessage:
            self.bad_messages += 1
            return False
        self._upstream.advanced(stream, batch)
        return True

    def _settle_all(self) -> None:
        for stream, book in self._shelf.books.items():
            if book.end > book.count:
                self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """Let count what counts by now: others are told, and publishers are answered."""
        book = self._shelf.books[stream]
        if book.settle(min(book.history.ready, self._gate(stream))) and self._is_tail:
            self._downstream.serve(stream)
            self._region.advanced(stream)
        for sender, answer in self._intake.settled(stream):
            if sender == self._context.me:
                self._context.out.answers.append(answer)
            else:
                self._context.send(sender, answer)


def _open(_stream: Stream) -> Seq:
    return ANYTHING
