"""How a client gets one stream (Sprinkler, Figure 3).

Who is notified of more than it has asked for asks the notifier. Answers are delivered in order; one that comes too
early waits, in a bounded place. A neighbour may have discarded what is wanted, or not answer: then the proxy is
asked for it, and if that does not help either, it counts as not asked for, and the next who notifies is asked.

**What must never happen.** An event is delivered twice, or one behind a gap. `position` only moves to the end of a
batch that begins right behind it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from sirius.broadcast.ahead import Ahead
from sirius.broadcast.config import ClientConfig
from sirius.broadcast.context import Context, Delivery
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import Events, Peer, Request
from sirius.broadcast.recent import Recent, size_of
from sirius.types import Seq


@dataclass(frozen=True, slots=True)
class _Asked:
    peer: Peer
    first: Seq
    last: Seq
    until: float


class Fetching:
    """One stream of one client, behind `after`."""

    def __init__(
        self, context: Context, config: ClientConfig, proxy: Peer, stream: Stream, after: Seq
    ) -> None:
        self._context, self._config, self._proxy, self._stream = context, config, proxy, stream
        self.position = after
        """`cnt` of the paper: everything up to here was delivered."""
        self._next = Seq(after + 1)
        """`next` of the paper: everything before was asked for."""
        self._heard = after
        self._heard_from = proxy
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._ahead = Ahead(config.ahead_bytes_max)
        self._backlog: deque[tuple[Seq, int]] = deque()
        self._backlog_bytes = 0
        self._idle_since = inf
        self.recent = Recent(config.recent_bytes_max)

    @property
    def waiting_bytes(self) -> int:
        """What waits for what comes before it."""
        return self._ahead.nbytes

    @property
    def backlog_bytes(self) -> int:
        """What the application has not taken."""
        return self._backlog_bytes

    @property
    def requests(self) -> int:
        """How many requests are under way."""
        return len(self._asked)

    # ------------------------------------------------------------------ asking

    def notified(self, sender: Peer, count: Seq) -> None:
        """`receiveNotify` of the paper."""
        if count >= self._next:
            self._heard, self._heard_from = max(self._heard, count), sender
            self._ask(sender, count)
        elif count > self.position:
            self._heard = max(self._heard, count)

    def _ask(self, peer: Peer, count: Seq) -> None:
        """Ask for what comes next, as long as there is room for it."""
        while self._next <= count and self._has_room(self._next):
            last = Seq(min(count, self._next + self._config.request_events_max - 1))
            self._request(peer, self._next, last)
            self._next = Seq(last + 1)

    def _has_room(self, first: Seq) -> bool:
        """Say whether to ask for what begins at `first`. What is next needs no place to wait: it frees some."""
        config = self._config
        return (
            len(self._asked) < config.requests_max
            and self._backlog_bytes < config.backlog_bytes_max
            and (first == self.position + 1 or self._ahead.nbytes < config.ahead_bytes_max)
        )

    def _request(self, peer: Peer, first: Seq, last: Seq) -> None:
        self._number += 1
        until = self._context.now + self._config.request_timeout_s
        self._asked[self._number] = _Asked(peer, first, last, until)
        self._context.send(peer, Request(self._stream, first, last, self._number))

    def _give_back(self, first: int) -> None:
        """Count something as not asked for."""
        self._next = Seq(max(self.position + 1, min(self._next, first)))

    # ------------------------------------------------------------------ answers

    def answered(self, sender: Peer, message: Events) -> bool:
        """Take what came; say whether something was delivered. Late and repeated answers are as good as any."""
        before = self.position
        for each in message.batches:
            self._take(each)
        while (batch := self._ahead.take(self.position)) is not None:
            self._deliver(batch)
        asked = self._asked.get(message.number)
        if asked is not None and _is_answer(message, sender, asked):
            del self._asked[message.number]
            self._follow_up(asked, message)
        self._next = Seq(max(self._next, self.position + 1))
        if self._next <= self._heard:
            self._ask(self._heard_from, self._heard)
        return self.position > before

    def _follow_up(self, asked: _Asked, message: Events) -> None:
        """Ask for what is left of a request: the same one if it had some of it, else the proxy."""
        got = message.batches[-1].last if message.batches else 0
        first = Seq(max(asked.first, got + 1, self.position + 1))
        if first > asked.last:
            return
        if message.batches and message.position >= first and self._has_room(first):
            self._request(asked.peer, first, asked.last)
        elif not message.batches and asked.peer != self._proxy and self._has_room(first):
            self._request(self._proxy, first, asked.last)
        else:
            self._give_back(first)
            if not message.batches:
                # The proxy has less than somebody said: ask again when somebody says it again, and not in a circle.
                self._heard = Seq(max(self.position, min(self._heard, first - 1)))

    def _take(self, batch: EventBatch) -> None:
        """Deliver it if it is next, have it wait if it is early."""
        if batch.last <= self.position:
            return
        if batch.first <= self.position + 1:
            self._deliver(batch.behind(self.position))
        elif not self._ahead.put(batch):
            self._give_back(batch.first)

    def _deliver(self, batch: EventBatch) -> None:
        self.position = batch.last
        self.recent.add(batch)
        self._backlog.append((batch.last, size_of(batch)))
        self._backlog_bytes += size_of(batch)
        self._context.out.deliver.append(Delivery(self._stream, batch))

    def consumed(self, seq: Seq) -> None:
        """The application has taken everything up to here."""
        while self._backlog and self._backlog[0][0] <= seq:
            self._backlog_bytes -= self._backlog.popleft()[1]
        if self._next <= self._heard:
            self._ask(self._heard_from, self._heard)

    # ------------------------------------------------------------------ time

    def tick(self) -> None:
        """Ask the proxy for what others did not answer; ask it, too, if there is more and nobody is asked."""
        now = self._context.now
        for number, asked in list(self._asked.items()):
            if now >= asked.until:
                del self._asked[number]
                self._timed_out(asked)
        if self._asked or self.position >= self._heard:
            self._idle_since = inf
            return
        self._idle_since = min(self._idle_since, now)
        if now - self._idle_since >= self._config.stall_s:
            self._idle_since = now
            self._next = Seq(self.position + 1)
            self._ask(self._proxy, self._heard)

    def _timed_out(self, asked: _Asked) -> None:
        first = Seq(max(asked.first, self.position + 1))
        if first > asked.last:
            return
        if asked.peer != self._proxy:
            self._request(self._proxy, first, asked.last)
        else:
            self._give_back(first)


def _is_answer(message: Events, sender: Peer, asked: _Asked) -> bool:
    """Say whether this is for that request. Numbers begin anew with each life, and answers may be very late."""
    batches = message.batches
    is_its_range = not batches or batches[0].first <= asked.first <= batches[-1].last
    return sender == asked.peer and is_its_range
