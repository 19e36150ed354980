"""One client: messages, requests of the application and the time go in, effects come out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from sirius.broadcast.client.fetching import Fetching
from sirius.broadcast.client.publisher import Publisher
from sirius.broadcast.config import ClientConfig
from sirius.broadcast.context import Context, Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.membership import View
from sirius.broadcast.messages import (
    Counts,
    Events,
    Gossip,
    Message,
    Notify,
    Peer,
    Published,
    Refused,
    Request,
)
from sirius.errors import UsageError
from sirius.types import Seq


class Client:
    """A client of a region. Not thread-safe: one loop owns it.

    `owners` says which streams there are and whom to publish to; `publisher` is a number that no other client has,
    nor an earlier life of this one.
    """

    def __init__(
        self,
        me: Peer,
        proxy: Peer,
        owners: Mapping[Stream, Peer],
        config: ClientConfig,
        rng: random.Random,
        *,
        now: float,
        publisher: int,
    ) -> None:
        self._context = context = Context(me, rng, now)
        self._config, self._proxy = config, proxy
        self._view = View(context, config.region, proxy)
        self._publisher = Publisher(context, config, owners, publisher)
        self._streams: dict[Stream, Fetching] = {}
        self._known = frozenset(owners)
        self._notify_at = now
        self._handlers: dict[type[Message], Callable[[Peer, Any], None]] = {
            Gossip: self._view.gossip,
            Notify: self._notified,
            Request: self._request,
            Events: self._answered,
            Published: self._publisher.answered,
            Refused: self._publisher.answered,
        }

    # ------------------------------------------------------------------ what it knows

    @property
    def counts(self) -> Counts:
        """How far it is in each stream: up to here everything was delivered."""
        return tuple((stream, fetching.position) for stream, fetching in self._streams.items())

    @property
    def view(self) -> tuple[Peer, ...]:
        """The others that it knows."""
        return self._view.members

    @property
    def unpublished(self) -> int:
        """How many batches have not been answered."""
        return self._publisher.waiting

    def fetching(self, stream: Stream) -> Fetching:
        """Return the state of a stream, for figures."""
        return self._streams[stream]

    # ------------------------------------------------------------------ what goes in

    def subscribe(self, stream: Stream, after: Seq = Seq(0)) -> None:
        """Deliver everything behind `after`: 0 for all there is, or the position of an earlier life to resume it."""
        if stream not in self._known:
            raise UsageError(f"there is no stream {stream!r}")
        if stream in self._streams:
            raise UsageError(f"stream {stream!r} is subscribed to already")
        context, config = self._context, self._config
        self._streams[stream] = Fetching(context, config, self._proxy, stream, after)

    def consumed(self, stream: Stream, seq: Seq) -> Effects:
        """The application has taken everything up to `seq`. Until it says so, no more than a bound is fetched."""
        self._streams[stream].consumed(seq)
        return self._context.taken()

    def publish(self, stream: Stream, batch: EventBatch) -> tuple[int, Effects]:
        """Publish a batch; return the serial with which it will be answered. Raises `Overloaded`."""
        serial = self._publisher.publish(stream, batch)
        return serial, self._context.taken()

    def at(self, now: float) -> None:
        """Say what time it is, before any other call but `tick`."""
        self._context.at(now)

    def step(self, sender: Peer, message: Message) -> Effects:
        """Take a message. What a client has no use for is ignored."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message)
        return self._context.taken()

    def tick(self, now: float) -> Effects:
        """Let time pass, and do what is due."""
        context = self._context
        context.at(now)
        self._view.tick()
        self._publisher.tick()
        for fetching in self._streams.values():
            fetching.tick()
        if context.now >= self._notify_at:
            self._notify_at = context.now + self._config.region.notify_s
            context.send_all(self._view.targets, Notify(self.counts))
        return context.taken()

    # ------------------------------------------------------------------ inside

    def _notified(self, sender: Peer, message: Notify) -> None:
        for stream, count in message.counts:
            fetching = self._streams.get(stream)
            if fetching is not None:
                fetching.notified(sender, count)

    def _request(self, sender: Peer, message: Request) -> None:
        """`receiveRequest` of the paper."""
        stream, first, last, number = message
        fetching = self._streams.get(stream)
        if fetching is not None and 1 <= first <= last:
            most = self._config.region.reply_bytes_max
            batches = fetching.recent.read(first, last, most)
            answer = Events(stream, number, fetching.position, batches)
            self._context.send(sender, answer)

    def _answered(self, sender: Peer, message: Events) -> None:
        """`deliverEvent` of the paper: whoever gets on tells a few neighbours."""
        fetching = self._streams.get(message.stream)
        if fetching is not None and fetching.answered(sender, message):
            news = Notify(((message.stream, fetching.position),))
            self._context.send_all(self._view.targets, news)
