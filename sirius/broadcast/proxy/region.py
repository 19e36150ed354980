"""A proxy's part in its region: a member like the clients, whose buffer is the history (Sprinkler, section 3.2)."""

from __future__ import annotations

from sirius.broadcast.config import RegionConfig
from sirius.broadcast.context import Context
from sirius.broadcast.events import Stream
from sirius.broadcast.membership import View
from sirius.broadcast.messages import Events, Notify, Peer, Request
from sirius.broadcast.proxy.shelf import Shelf


class Region:
    """Notifies, and answers requests."""

    def __init__(self, context: Context, config: RegionConfig, shelf: Shelf) -> None:
        self._context, self._config, self._shelf = context, config, shelf
        self.view = View(context, config, proxy=None)
        self._notify_at = context.now

    def advanced(self, stream: Stream) -> None:
        """Tell a few neighbours at once."""
        message = Notify(((stream, self._shelf.count(stream)),))
        self._context.send_all(self.view.targets, message)

    def tick(self) -> None:
        """Tell a few neighbours again: the last event of a quiet stream would be missed otherwise."""
        self.view.tick()
        if self._context.now >= self._notify_at:
            self._notify_at = self._context.now + self._config.notify_s
            self._context.send_all(self.view.targets, Notify(self._shelf.counts))

    def request(self, sender: Peer, message: Request) -> None:
        """Answer with what there is."""
        stream, first, last, number = message
        if stream not in self._shelf or not 1 <= first <= last:
            return
        batches = self._shelf.read(stream, first, last, self._config.reply_bytes_max)
        self._context.send(sender, Events(stream, number, self._shelf.count(stream), batches))
