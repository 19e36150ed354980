"""Who has subscribed to this proxy, and what is under way to them.

A subscriber says from where on, and confirms what has arrived. At most a window is under way to it; more follows
with its next confirmation. Nothing is kept for anybody: what is new is passed on as it came, and who falls behind
is served from the history, where what was collected meanwhile has become a hole.
"""

from __future__ import annotations

from dataclasses import dataclass

from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.context import Context
from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Epoch, Forward, Peer, Subscribe, Unsubscribe
from sirius.broadcast.proxy.shelf import Shelf
from sirius.broadcast.proxy.window import Window
from sirius.types import Seq


@dataclass(slots=True)
class _Subscriber:
    epoch: Epoch
    window: Window
    renewed_at: float


class Downstream:
    """The subscribers of one proxy."""

    def __init__(self, context: Context, config: ProxyConfig, shelf: Shelf) -> None:
        self._context, self._config, self._shelf = context, config, shelf
        self._subscribers: dict[tuple[Stream, Peer], _Subscriber] = {}

    @property
    def under_way(self) -> int:
        """Bytes that were sent and not confirmed, to whom it is most."""
        return max((each.window.nbytes for each in self._subscribers.values()), default=0)

    def subscribe(self, sender: Peer, message: Subscribe) -> None:
        """Take, begin anew or confirm a subscription."""
        if message.stream not in self._shelf:
            return
        key = message.stream, sender
        entry = self._subscribers.get(key)
        if entry is None:
            if len(self._subscribers) >= self._config.subscribers_max:
                return
            entry = _Subscriber(message.epoch, Window(message.after), self._context.now)
            self._subscribers[key] = entry
        elif message.epoch < entry.epoch:
            return
        elif message.epoch > entry.epoch:
            entry.epoch = message.epoch
            entry.window.begin(message.after)
        entry.window.confirm(message.after)
        entry.renewed_at = self._context.now
        self._serve(message.stream, sender, entry)

    def unsubscribe(self, sender: Peer, message: Unsubscribe) -> None:
        entry = self._subscribers.get((message.stream, sender))
        if entry is not None and message.epoch >= entry.epoch:
            del self._subscribers[message.stream, sender]

    def serve(self, stream: Stream) -> None:
        """Pass on what is new in a stream."""
        for (wanted, peer), entry in self._subscribers.items():
            if wanted == stream:
                self._serve(stream, peer, entry)

    def _serve(self, stream: Stream, peer: Peer, entry: _Subscriber) -> None:
        config, last, window = self._config, self._shelf.count(stream), entry.window
        while window.sent < last and window.nbytes < config.window_bytes:
            first = Seq(window.sent + 1)
            for batch in self._shelf.read(stream, first, last, config.forward_bytes_max):
                self._context.send(peer, Forward(stream, batch))
                window.add(batch)

    def tick(self) -> None:
        """Forget who is silent."""
        oldest = self._context.now - self._config.subscriber_timeout_s
        silent = [key for key, entry in self._subscribers.items() if entry.renewed_at < oldest]
        for key in silent:
            del self._subscribers[key]
