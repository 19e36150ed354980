"""Who else is in the region: gossip about views (Sprinkler, section 3.2, after Allavena, Demers and Hopcroft).

Everybody knows a few others, his *view*, and exchanges it with one of them now and then. Who receives a view joins
it with his own and removes random members until it is small enough, but never the sender: *reinforcement*. Views
are then a random graph, and whoever is gone disappears, since he reinforces himself no more.

The proxy of the region is a member like the others. A new client knows the proxy alone. A client whose view is not
full counts the proxy among its neighbours, and every client gossips with the proxy now and then. So no partition
stays.

Beyond the paper: who does not answer leaves the view at once, and the views of those who are told so and have not
heard from him lately. He is not taken back on hearsay for a while. In a region with fewer members than a view has
places nothing would ever be removed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable

from sirius.broadcast.config import RegionConfig
from sirius.broadcast.context import Context
from sirius.broadcast.messages import Gossip, Peer


class View:
    """The view of one member. `proxy` is None for the proxy itself."""

    def __init__(self, context: Context, config: RegionConfig, proxy: Peer | None) -> None:
        self._context = context
        self._config = config
        self._proxy = proxy
        self._members: list[Peer] = [] if proxy is None else [proxy]
        self._unanswered: dict[Peer, float] = {}
        self._suspects: dict[Peer, float] = {}
        self._gone: dict[Peer, float] = {}
        self._heard_at: dict[Peer, float] = {}
        """Who has spoken lately: what others say of him does not count."""
        self._gossip_at = context.now
        self._shuffle_at = context.now
        self._targets: tuple[Peer, ...] = ()

    @property
    def members(self) -> tuple[Peer, ...]:
        return tuple(self._members)

    @property
    def neighbours(self) -> list[Peer]:
        """The view, and the proxy if there is room for it."""
        proxy = self._proxy
        if proxy is None or proxy in self._members or len(self._members) >= self._config.view_max:
            return self._members
        return [*self._members, proxy]

    @property
    def targets(self) -> tuple[Peer, ...]:
        """Whom to notify now: a few neighbours, drawn anew every so often."""
        context = self._context
        if context.now >= self._shuffle_at or not self._targets:
            self._shuffle_at = context.now + self._config.shuffle_s
            neighbours = self.neighbours
            count = min(self._config.fanout, len(neighbours))
            self._targets = tuple(context.rng.sample(neighbours, count))
        return self._targets

    def tick(self) -> None:
        """Gossip if it is time, and give up whoever did not answer."""
        now = self._context.now
        for peer, until in list(self._unanswered.items()):
            if now >= until:
                self._is_gone(peer)
        self._suspects = {peer: until for peer, until in self._suspects.items() if now < until}
        self._gone = {peer: until for peer, until in self._gone.items() if now < until}
        oldest = now - self._config.suspect_s
        self._heard_at = {peer: at for peer, at in self._heard_at.items() if at > oldest}
        if now >= self._gossip_at:
            self._gossip_at = now + self._config.gossip_s * (0.5 + self._context.rng.random())
            self._gossip()

    def _gossip(self) -> None:
        neighbours, rng = self.neighbours, self._context.rng
        if self._proxy is not None and rng.random() < self._config.proxy_share:
            neighbours = [self._proxy]
        if not neighbours:
            return
        peer = rng.choice(neighbours)
        self._unanswered.setdefault(peer, self._context.now + self._config.gossip_timeout_s)
        self._context.send(peer, self._message(wants_answer=True))

    def _message(self, *, wants_answer: bool) -> Gossip:
        return Gossip(self.members, wants_answer, tuple(self._gone)[: self._config.view_max])

    def _is_gone(self, peer: Peer) -> None:
        """It did not answer. That is told to others, who do not tell it further."""
        del self._unanswered[peer]
        self._gone[peer] = self._context.now + self._config.suspect_s
        self._suspect(peer)

    def _suspect(self, peer: Peer) -> None:
        if peer in self._members:
            self._members.remove(peer)
        self._targets = tuple(each for each in self._targets if each != peer)
        self._suspects[peer] = self._context.now + self._config.suspect_s

    def meet(self, peers: Iterable[Peer]) -> None:
        """Begin with others that somebody else has known."""
        known = dict.fromkeys((*self._members, *peers))
        self._members = [peer for peer in known if peer != self._context.me]
        del self._members[self._config.view_max :]

    def gossip(self, sender: Peer, message: Gossip) -> None:
        """Take the view of another member."""
        self._unanswered.pop(sender, None)
        self._suspects.pop(sender, None)
        self._gone.pop(sender, None)
        self._heard_at[sender] = self._context.now
        if message.wants_answer:
            self._context.send(sender, self._message(wants_answer=False))
        for peer in message.gone[: self._config.view_max]:
            if peer not in self._heard_at and peer != self._context.me:
                self._suspect(peer)
        self._join(sender, message.view[: self._config.view_max])

    def _join(self, sender: Peer, view: Iterable[Peer]) -> None:
        me = self._context.me
        union = dict.fromkeys((*self._members, *view))
        others = [peer for peer in union if peer not in (me, sender) and peer not in self._suspects]
        room = self._config.view_max - 1
        if len(others) > room:
            others = self._context.rng.sample(others, room)
        self._members = [sender, *others]
