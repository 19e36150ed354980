"""The subscriber's end of a pushed stream.

At the tip a follower subscribes, and the source pushes what it learns. A subscription is soft: it is repeated all the
time, each repetition confirms how far the subscriber is and allows that much more, and it lapses when either end is
silent. Nothing is resent: what was lost is noticed by the gap before the next push or by the tip in a sign of life,
and pulled.
"""

from __future__ import annotations

from sirius.catchup.context import Context
from sirius.catchup.messages import Subscribe
from sirius.catchup.sources import Source
from sirius.types import Seq


class Stream:
    """A subscription to one source."""

    def __init__(self, context: Context, source: Source) -> None:
        self._context = context
        self.source = source
        self._heard_at = context.now
        self._renewed_at = context.now
        self._after = Seq(0)
        self._bytes = 0

    def heard(self) -> None:
        self._heard_at = self._context.now

    def took(self, size: int) -> None:
        """So much of what came was of use. What was not allows no more: the source would send it again at once."""
        self._bytes += size

    @property
    def is_silent(self) -> bool:
        return self._context.now - self._heard_at >= self._context.config.stream_timeout_s

    def renew(self, after: Seq) -> None:
        config = self._context.config
        self._renewed_at = self._context.now
        self._after = after
        self._bytes = 0
        self._context.send(
            self.source.member,
            Subscribe(after, config.push_slots_max, config.push_bytes_max),
        )

    def renew_if_due(self, after: Seq) -> None:
        """Renew now and then, and early when half of what was allowed was taken."""
        config = self._context.config
        slots, size = (after - self._after) * 2, self._bytes * 2
        half_used = slots >= config.push_slots_max or size >= config.push_bytes_max
        if half_used or self._context.now - self._renewed_at >= config.keepalive_s:
            self.renew(after)
