"""Where a proxy gets foreign streams from (Sprinkler, Figure 1, `rcvAdvertisement`).

For each foreign stream a proxy subscribes to one other proxy at most, not necessarily the owner. Every
advertisement is a chance to change the source: the paper switches if it is further than what the present source
last announced by more than C/(T - t), where t is when that was. So a source that makes no progress is left the more
readily the longer that lasts, and a link that is down is bypassed.

Three things are added.

- Nobody switches to a source that has nothing new for him. With the paper's rule, what is pushed runs ahead of what
  is advertised, and two proxies can come to be subscribed to each other.
- Who knows of more, and got nothing for `patience_s`, switches to any source that has more. With the paper's rule a
  quiet stream waits C seconds for its last event, and for ever for what a dead source has announced and nobody else
  has.
- Links lose messages and turn them round. A subscription is repeated, with what has arrived; what is early waits; a
  gap that stays, or silence although the source has more, begins it anew from there, under a higher epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sirius.broadcast.ahead import Ahead
from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.context import Context
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import Advertise, Peer, Subscribe, Unsubscribe
from sirius.broadcast.proxy.shelf import Shelf
from sirius.broadcast.recent import size_of


@dataclass(slots=True)
class _Expects:
    """`expects` of the paper, and the state of the subscription."""

    ahead: Ahead
    source: Peer | None = None
    count: int = 0
    """What the source announced when it last made good progress."""
    at: float = 0.0
    offered: int = 0
    """What the source announced last."""
    behind_since: float = inf
    """Since when others are known to have more, with nothing coming in."""
    gap_since: float = inf
    """Since when something has waited for what comes before it."""
    epoch: int = 0
    subscribed_at: float = 0.0
    progressed_at: float = 0.0
    renewed_at: float = 0.0
    unconfirmed: int = 0
    """Bytes since the last confirmation."""


class Upstream:
    """The subscriptions of one proxy. `life` is higher than in any earlier life of it."""

    def __init__(self, context: Context, config: ProxyConfig, shelf: Shelf, life: int) -> None:
        self._context, self._config, self._shelf, self._life = context, config, shelf, life
        self._expects = {
            stream: _Expects(Ahead(config.window_bytes))
            for stream, owner in shelf.owners.items()
            if owner != context.me
        }

    def source(self, stream: Stream) -> Peer | None:
        """Whom a foreign stream comes from."""
        return self._expects[stream].source

    def is_foreign(self, stream: Stream) -> bool:
        return stream in self._expects

    # ------------------------------------------------------------------ whom to subscribe to

    def advertised(self, sender: Peer, message: Advertise) -> None:
        """Another proxy says how far it is."""
        for stream, count in message.counts:
            expects = self._expects.get(stream)
            if expects is not None and (
                count > self._shelf.end(stream) or sender == expects.source
            ):
                self._consider(stream, expects, sender, count)

    def _consider(self, stream: Stream, expects: _Expects, sender: Peer, count: int) -> None:
        now, own = self._context.now, self._shelf.end(stream)
        threshold = self._threshold(expects)
        if sender == expects.source:
            expects.offered = count
            if count > expects.count + threshold:
                expects.count, expects.at = count, now
        elif count > max(expects.count, own) + threshold or self._is_impatient(expects):
            self._switch(stream, expects, sender, count)
        if count > own:
            expects.behind_since = min(expects.behind_since, now)

    def _threshold(self, expects: _Expects) -> float:
        if expects.source is None:
            return 0.0
        elapsed = self._context.now - expects.at
        return self._config.switch_c / elapsed if elapsed > 0 else inf

    def _is_impatient(self, expects: _Expects) -> bool:
        return self._context.now - expects.behind_since >= self._config.patience_s

    def _switch(self, stream: Stream, expects: _Expects, source: Peer, count: int) -> None:
        if expects.source is not None:
            old = Unsubscribe(stream, (self._life, expects.epoch))
            self._context.send(expects.source, old)
        now = self._context.now
        expects.source, expects.count, expects.at, expects.offered = source, count, now, count
        expects.behind_since = now
        self._subscribe(stream, expects)

    # ------------------------------------------------------------------ the subscription

    def _subscribe(self, stream: Stream, expects: _Expects) -> None:
        """Begin anew from where this proxy got to."""
        expects.epoch += 1
        expects.subscribed_at = self._context.now
        self._renew(stream, expects)

    def _renew(self, stream: Stream, expects: _Expects) -> None:
        expects.renewed_at = self._context.now
        expects.unconfirmed = 0
        if expects.source is not None:
            epoch = (self._life, expects.epoch)
            message = Subscribe(stream, self._shelf.end(stream), epoch)
            self._context.send(expects.source, message)

    def early(self, stream: Stream, batch: EventBatch) -> None:
        """Something is missing before what came. It waits: what is missing may only be late."""
        expects = self._expects[stream]
        expects.ahead.put(batch)
        expects.gap_since = min(expects.gap_since, self._context.now)

    def waiting(self, stream: Stream) -> EventBatch | None:
        """Return what came early and is next now."""
        return self._expects[stream].ahead.take(self._shelf.end(stream))

    def advanced(self, stream: Stream, batch: EventBatch) -> None:
        """This proxy got on."""
        expects = self._expects[stream]
        expects.behind_since = inf
        expects.gap_since = self._context.now if len(expects.ahead) else inf
        expects.progressed_at = self._context.now
        expects.unconfirmed += size_of(batch)
        if 2 * expects.unconfirmed >= self._config.window_bytes:
            self._renew(stream, expects)

    def tick(self) -> None:
        """Confirm what is due; begin anew what has stopped."""
        now, config = self._context.now, self._config
        for stream, expects in self._expects.items():
            if expects.source is None:
                continue
            is_behind = self._shelf.end(stream) < expects.offered
            waited = now - max(expects.subscribed_at, expects.progressed_at)
            has_gap = now - max(expects.subscribed_at, expects.gap_since) >= config.gap_s
            if has_gap or (is_behind and waited >= config.retry_s):
                self._subscribe(stream, expects)
            elif now - expects.renewed_at >= config.renew_s:
                self._renew(stream, expects)
