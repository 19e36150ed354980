"""One replica: messages, configurations and the time go in, effects come out.

It is a proxy that plays the parts which its place in the chain gives it, and between the parts a line: what the head
takes goes from replica to replica, and how far the tail is comes back.
"""

from __future__ import annotations

import random
from typing import Final

from sirius.broadcast.ahead import Ahead
from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.feeding import Feeding
from sirius.broadcast.chain.routes import FOR_HEADS, QUESTIONS
from sirius.broadcast.config import ChainConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.history import ANYTHING, Published
from sirius.broadcast.messages import (
    Advertise,
    ChainBeat,
    ChainIs,
    ChainPull,
    ChainPush,
    Counts,
    Gossip,
    Message,
    Peer,
)
from sirius.broadcast.proxy import Proxy
from sirius.errors import BadMessage
from sirius.types import Seq

LINE: Final = frozenset({ChainPush, ChainPull, ChainBeat})
"""What replicas of a chain say to each other, under their own names. Everything else is the proxy's, under its name."""


class Replica:
    """A replica of a proxy. Not thread-safe: one loop owns it.

    `me` is this replica in this life: lives must rise, the time of day will do. `proxy` has the name that everybody
    calls all replicas by, and plays the parts that its place in the chain gives it. `strangers` are the replicas of
    other proxies, and proxies that have none: the tail tells them who the replicas are.
    """

    def __init__(
        self,
        me: Member,
        proxy: Proxy,
        config: ChainConfig,
        rng: random.Random,
        *,
        now: float,
        strangers: tuple[Peer, ...] = (),
    ) -> None:
        self.me, self.proxy = me, proxy
        self.chain = Chain()
        self._config, self._times, self._rng = proxy.config, config, rng
        self._strangers = strangers
        self.proxy.assume(head=False, tail=False, life=0)
        self.proxy.guard(self._gate)
        self._books = self.proxy.shelf.books
        self._ahead = {stream: Ahead(proxy.config.window_bytes) for stream in self._books}
        self._stable: dict[Stream, Seq] = dict.fromkeys(self._books, Seq(0))
        """Up to where others say that it counts."""
        self._before: Member | None = None
        self._behind: Member | None = None
        self._feeding: dict[Stream, Feeding] = {}
        self._hands_over = False
        self._clients: tuple[Peer, ...] = ()
        """Some that the tail knows: whoever is the next one speaks to them at once."""
        self._now = now
        self._heard_at: dict[Member, float] = {}
        self._beat_at = now
        self._propose_at = now
        self._reported: tuple[Counts, Counts] | None = None
        self.bad_messages = 0
        self._out = Effects()

    # ------------------------------------------------------------------ what it knows

    @property
    def is_member(self) -> bool:
        return self.me in self.chain.members

    @property
    def is_head(self) -> bool:
        return self.is_member and self.chain.members[0] == self.me

    @property
    def is_tail(self) -> bool:
        return self.is_member and self.chain.members[-1] == self.me

    def owns(self, stream: Stream) -> bool:
        """Say whether the chain numbers a stream; others it gets from their owners."""
        return self.proxy.shelf.owners[stream] == self.proxy.name

    def _gate(self, stream: Stream) -> int:
        """Say up to where what was taken counts: at the tail all of it, and elsewhere what the tail has.

        A tail that hands over to whoever has joined counts him in already: from then on he has all that counts.
        """
        if not self.is_tail:
            return self._stable[stream]
        if self._hands_over:
            return self._feeding[stream].has or 0
        return ANYTHING

    # ------------------------------------------------------------------ what goes in

    def at(self, now: float, time_us: int) -> None:
        """Say what time it is, before any other call but `tick`."""
        if now - self._now > self._times.suspect_s / 2:
            # It was this one that was away: nobody else has been silent for that.
            self._heard_at = dict.fromkeys(self._heard_at, now)
        self._now = max(self._now, now)
        self.proxy.at(now, time_us)

    def configured(self, chain: Chain) -> Effects:
        """Take the newest configuration. Older ones change nothing."""
        if chain.number <= self.chain.number:
            return Effects()
        self.chain = chain
        self._before, self._behind = chain.neighbours(self.me)
        self._hands_over, self._reported = False, None
        self._heard_at = dict.fromkeys(filter(None, (self._before, self._behind)), self._now)
        self._feeding = {
            stream: Feeding(stream, book, self._config, self._now)
            for stream, book in self._books.items()
        }
        if not self.is_member:
            self._start_over()
        self.proxy.assume(head=self.is_head, tail=self.is_tail, life=chain.number)
        self._greet()
        self._propose_at = self._now + self._rng.random() * self._times.propose_s
        self._beat()
        return self._finish(self.proxy.settle())

    def _start_over(self) -> None:
        """What does not count may come to nothing where this one is not a member any more."""
        for book in self._books.values():
            book.drop_pending()
        self._ahead = {stream: Ahead(self._config.window_bytes) for stream in self._books}

    def step(self, sender: Peer, message: Message) -> Effects:
        """Take a message."""
        match message:
            case ChainPush() | ChainPull() | ChainBeat():
                self._line(sender, message)
                return self._finish(self.proxy.settle())
        is_mine = self.is_head if type(message) in FOR_HEADS else self.is_tail
        if is_mine:
            return self._finish(self.proxy.step(sender, message))
        if type(message) in QUESTIONS:
            self._introduce(sender)
        return self._finish(Effects())

    def tick(self, now: float, time_us: int) -> Effects:
        """Let time pass, and do what is due. Call it several times per `retry_s`, or as often as messages come."""
        self.at(now, time_us)
        effects = self.proxy.tick(now, time_us) if self.is_member else Effects()
        if self._now >= self._beat_at:
            self._beat_at = self._now + self._times.beat_s
            self._reported = None
            self._beat()
        if self._now >= self._propose_at:
            self._propose()
        return self._finish(effects)

    def _beat(self) -> None:
        """Tell the neighbours that one lives, and what is known of clients."""
        if self.is_tail and self.proxy.view:
            self._clients = self.proxy.view
        for neighbour in filter(None, (self._before, self._behind)):
            self._send(neighbour.peer, ChainBeat(self.chain.number, self._clients))

    # ------------------------------------------------------------------ the line

    def _line(self, sender: Peer, message: ChainPush | ChainPull | ChainBeat) -> None:
        """Whoever is in another configuration, or not a neighbour in this one, is not heard."""
        if message.number != self.chain.number:
            return
        neighbour = next((each for each in self._heard_at if each.peer == sender), None)
        if neighbour is None:
            return
        self._heard_at[neighbour] = self._now
        if isinstance(message, ChainBeat):
            self._hear_of(message.clients)
        elif isinstance(message, ChainPush) and neighbour == self._before:
            self._pushed(message)
        elif isinstance(message, ChainPull) and neighbour == self._behind:
            self._pulled(message)

    def _hear_of(self, clients: tuple[Peer, ...]) -> None:
        """A tail knows better, unless it knows nobody."""
        if clients and not (self.is_tail and self.proxy.view):
            self._clients = clients
            self._greet()

    def _greet(self) -> None:
        """A new tail speaks to the clients that the old one has known: who knows enough others would not ask soon."""
        if self.is_tail and not self.proxy.view:
            self.proxy.meet(self._clients)
            for peer in self._clients:
                self._introduce(peer)

    def _pushed(self, message: ChainPush) -> None:
        _, stream, count, marks, batch = message
        if stream not in self._books:
            return
        book, ahead = self._books[stream], self._ahead[stream]
        for mark in marks:
            book.history.note(mark.publisher, Published(mark.serial, mark.first, mark.last))
        following: EventBatch | None = None
        if batch.first > book.end + 1:
            ahead.put(batch)
        elif batch.last > book.end:
            following = batch.behind(book.end)
        while following is not None and self._take(stream, following):
            following = ahead.take(book.end)
        self._stable[stream] = max(self._stable[stream], count)

    def _take(self, stream: Stream, batch: EventBatch) -> bool:
        try:
            self._books[stream].take(batch)
        except BadMessage:
            self.bad_messages += 1
            return False
        return True

    def _pulled(self, message: ChainPull) -> None:
        for stream, end in message.ends:
            if stream in self._feeding:
                self._feeding[stream].confirmed(end, self._now)
        if not self.is_tail:
            for stream, count in message.counts:
                if stream in self._stable:
                    self._stable[stream] = max(self._stable[stream], count)
        elif not self._hands_over:
            self._hands_over = all(feeding.is_close() for feeding in self._feeding.values())

    # ------------------------------------------------------------------ configurations

    def _propose(self) -> None:
        """Propose what has to change, again and again until something has."""
        self._propose_at = self._now + self._times.propose_s * (0.5 + self._rng.random())
        chain = self._wanted() if self.is_member else self._entry()
        if chain is not None:
            self._out.propose.append(chain)

    def _wanted(self) -> Chain | None:
        """A member wants neighbours that live, and a tail that whoever has caught up takes over."""
        oldest = self._now - self._times.suspect_s
        for member, heard_at in self._heard_at.items():
            if heard_at < oldest:
                return self.chain.without(member)
        if self._hands_over and all(
            (feeding.has or 0) >= self._books[stream].count
            for stream, feeding in self._feeding.items()
        ):
            return self.chain.extended()
        return None

    def _entry(self) -> Chain | None:
        """Who is no member wants to be one. What he was in an earlier life has to go first."""
        if self.chain.joining == self.me:
            return None
        for member in (*self.chain.members, self.chain.joining):
            if member is not None and member.peer == self.me.peer:
                return self.chain.without(member)
        return self.chain.joined(self.me)

    # ------------------------------------------------------------------ what comes out

    def _send(self, to: Peer, message: Message) -> None:
        self._out.send.append((to, message))

    def _introduce(self, peer: Peer) -> None:
        if self.chain.number:
            self._send(peer, ChainIs(self.proxy.name, self.chain.number, self.chain.peers))

    def _finish(self, effects: Effects) -> Effects:
        """Add to what the proxy asks for what goes along the line, and tell those who are spoken to who speaks."""
        if self._behind is not None:
            self._feed(self._behind.peer)
        if self._before is not None:
            self._report(self._before.peer)
        self._announce(effects.send)
        out, self._out = self._out, Effects()
        effects.send += out.send
        effects.propose += out.propose
        return effects

    def _feed(self, peer: Peer) -> None:
        for feeding in self._feeding.values():
            for push in feeding.pushes(self.chain.number, self._now, self._times.retry_s):
                self._send(peer, push)

    def _report(self, peer: Peer) -> None:
        state = self.proxy.shelf.ends, self.proxy.shelf.counts
        if state != self._reported:
            self._reported = state
            self._send(peer, ChainPull(self.chain.number, *state))

    def _announce(self, sent: list[tuple[Peer, Message]]) -> None:
        kinds = {type(message) for _, message in sent}
        if Advertise in kinds:
            for stranger in self._strangers:
                self._introduce(stranger)
        if Gossip in kinds:
            for peer, message in sent:
                if isinstance(message, Gossip):
                    self._introduce(peer)
