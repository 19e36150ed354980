"""The source's end of pushed streams.

A subscriber says how far it is and how much may be under way to it. What is new is pushed as long as that allows;
then the subscriber is dropped, with a last word about the tip, and pulls. Nothing is buffered for anybody: what does
not fit can be pulled. Subscribing again, which subscribers do all the time, takes it up where the newest values in
memory allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sirius.catchup.cache import Cache
from sirius.catchup.context import Context
from sirius.catchup.messages import Push, Standing, Subscribe
from sirius.paxos.members import Member
from sirius.paxos.values import Value
from sirius.types import NodeId, Seq


@dataclass(slots=True)
class _Subscriber:
    member: Member
    sent: Seq
    """Everything up to here was pushed, or is not wanted."""
    confirmed: Seq
    slots: int
    bytes: int
    renewed_at: float
    spoken_at: float
    under_way: deque[tuple[Seq, int]] = field(default_factory=deque)
    """Ends and sizes of what was pushed and not confirmed."""

    def confirm(self, after: Seq) -> None:
        self.confirmed = max(self.confirmed, after)
        self.sent = max(self.sent, after)
        while self.under_way and self.under_way[0][0] <= self.confirmed:
            self.under_way.popleft()

    def has_room(self, value: Value) -> bool:
        used = sum(size for _, size in self.under_way)
        return value.last <= self.confirmed + self.slots and used + len(value) <= self.bytes


class Subscribers:
    """All that have subscribed to this node."""

    def __init__(self, context: Context, cache: Cache, standing: Callable[[], Standing]) -> None:
        self._context = context
        self._cache = cache
        self._standing = standing
        self._all: dict[NodeId, _Subscriber] = {}

    def subscribe(self, sender: Member, message: Subscribe) -> None:
        """Take or renew a subscription. Who cannot have one learns the tip, and pulls."""
        standing, config, now = self._standing(), self._context.config, self._context.now
        entry = self._all.get(sender.node)
        if entry is None:
            in_reach = max(standing.edition.floor, self._cache.first - 1) <= message.after
            if not in_reach or len(self._all) >= config.subscribers_max:
                self._context.send(sender, Push((), standing))
                return
            entry = _Subscriber(sender, message.after, message.after, 0, 0, now, now)
            self._all[sender.node] = entry
            self._context.send(sender, Push((), standing))
        entry.confirm(message.after)
        entry.slots = min(message.slots, config.push_slots_max)
        entry.bytes = min(message.bytes, config.push_bytes_max)
        entry.renewed_at = now
        self._serve(entry, standing)

    def serve(self) -> None:
        """Push what is new to everybody."""
        if not self._all:
            return
        standing = self._standing()
        for entry in list(self._all.values()):
            self._serve(entry, standing)

    def tick(self) -> None:
        """Drop who is silent, and show life to those to whom there was nothing to say."""
        if not self._all:
            return
        now, config = self._context.now, self._context.config
        standing = self._standing()
        for entry in list(self._all.values()):
            if now - entry.renewed_at >= config.stream_timeout_s:
                del self._all[entry.member.node]
            elif now - entry.spoken_at >= config.keepalive_s:
                self._push(entry, (), standing)

    def _serve(self, entry: _Subscriber, standing: Standing) -> None:
        """Push what is next and allowed; a subscriber for whom that is not all is dropped."""
        if entry.sent >= standing.tip:
            return
        values = tuple(self._next(entry, standing))
        if entry.sent < standing.tip:
            del self._all[entry.member.node]
        self._push(entry, values, standing)

    def _next(self, entry: _Subscriber, standing: Standing) -> Iterator[Value]:
        first, config = entry.sent + 1, self._context.config
        if first < self._cache.first or entry.confirmed < standing.edition.floor:
            return
        for value in self._cache.range(first, standing.tip, config.push_bytes_max):
            if not entry.has_room(value):
                return
            entry.under_way.append((value.last, len(value)))
            entry.sent = value.last
            yield value

    def _push(self, entry: _Subscriber, values: tuple[Value, ...], standing: Standing) -> None:
        entry.spoken_at = self._context.now
        self._context.send(entry.member, Push(values, standing))
