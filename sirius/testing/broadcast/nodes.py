"""Simulated proxies and clients: the real machines, with a driver that crashes, pauses and dawdles on demand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sirius.broadcast.chain.replica import Replica
from sirius.broadcast.chain.routes import Routes
from sirius.broadcast.client import Client
from sirius.broadcast.context import Delivery, Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import ChainIs, Counts, Message, Peer, Published
from sirius.broadcast.proxy import Proxy
from sirius.errors import Overloaded
from sirius.testing.broadcast.checker import Violation, WatchedHistory
from sirius.types import Seq

if TYPE_CHECKING:
    from sirius.testing.broadcast.world import World

_DAY_US = 1_800_000_000_000_000
_PATIENCE_S = 0.3
"""When somebody tries another replica."""


class Node:
    """What proxies and clients have in common."""

    machine: Proxy | Client | Replica

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, Peer(name)
        self.rng = random.Random(world.rng.getrandbits(64))
        self._skew_us = 0
        self.life = 0
        self.is_up = False
        self.is_gone = False
        self._paused = 0
        self._inbox: list[Callable[[], None]] = []
        self.routes = Routes(world.settings.chains, _PATIENCE_S)

    # ------------------------------------------------------------------ lives

    def start(self) -> None:
        if self.is_up or self.is_gone:
            return
        self.life += 1
        self.is_up = True
        self.boot()
        self.world.loop.after(self.rng.random() * self.world.settings.tick_s, self._beat(self.life))

    def stop(self) -> None:
        self.is_up = False
        self._inbox.clear()

    def boot(self) -> None:
        raise NotImplementedError

    @property
    def counts(self) -> Counts:
        """How far it is, if it is up."""
        if not self.is_up:
            return ()
        machine = self.machine
        return machine.proxy.counts if isinstance(machine, Replica) else machine.counts

    def pause(self) -> None:
        self._paused += 1

    def resume(self) -> None:
        self._paused = max(0, self._paused - 1)
        if not self._paused:
            waiting, self._inbox = self._inbox, []
            for action in waiting:
                self.do(action)

    @property
    def time_us(self) -> int:
        """The time of the day, as this one sees it."""
        return _DAY_US + self._skew_us + int(self.world.loop.now * 1e6)

    # ------------------------------------------------------------------ events

    def do(self, action: Callable[[], None]) -> None:
        """Do something now, or when the pause is over; a dead one does nothing."""
        if not self.is_up:
            return
        if self._paused:
            self._inbox.append(action)
        else:
            action()

    def _beat(self, life: int) -> Callable[[], None]:
        def beat() -> None:
            if self.is_up and self.life == life:
                self.world.loop.after(self.world.settings.tick_s, beat)
                self.do(self.tick)

        return beat

    def tick(self) -> None:
        raise NotImplementedError

    def arrive(self, sender: Peer, message: Message) -> None:
        if isinstance(message, ChainIs):
            self.do(lambda: self.routes.learn(message))
        else:
            self.do(lambda: self._receive(sender, message))

    def _receive(self, sender: Peer, message: Message) -> None:
        self.routes.heard(sender, message)
        self.step(sender, message)

    def step(self, sender: Peer, message: Message) -> None:
        raise NotImplementedError

    def sender(self, _message: Message) -> Peer:
        """The name under which a message goes out."""
        return self.name

    def run(self, effects: Effects) -> None:
        for to, message in effects.send:
            target = self.routes.target(to, message, self.world.loop.now)
            self.world.send(self.name, target, self.sender(message), message)


class ProxyNode(Node):
    """A proxy. Its own streams are on a disk that survives; those of others may be in memory alone."""

    machine: Proxy

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._disk: dict[Stream, WatchedHistory] = {}
        self._skew_us = self.rng.randrange(-3_600_000_000, 3_600_000_000)

    def forget(self) -> None:
        """Lose the streams of others."""
        owners = self.world.settings.layout.owners
        self._disk = {
            stream: kept for stream, kept in self._disk.items() if owners[stream] == self.name
        }

    def boot(self) -> None:
        settings, world = self.world.settings, self.world
        rng = random.Random(self.rng.getrandbits(64))
        now = world.loop.now
        self._skew_us += self.rng.randrange(-3_600_000_000, 3_600_000_000)
        self.machine = Proxy(
            self.name, settings.layout, self._open, settings.proxy, rng, now=now, life=self.life
        )

    def _open(self, stream: Stream) -> WatchedHistory:
        if stream not in self._disk:
            owned = self.world.settings.layout.owners[stream] == self.name
            truth = self.world.checker.truth
            self._disk[stream] = WatchedHistory(truth, self.name, stream, owned=owned)
        return self._disk[stream]

    def tick(self) -> None:
        self.run(self.machine.tick(self.world.loop.now, self.time_us))
        check_proxy(self.world, self.name, self.machine)

    def step(self, sender: Peer, message: Message) -> None:
        self.machine.at(self.world.loop.now, self.time_us)
        self.run(self.machine.step(sender, message))


def check_proxy(world: World, name: str, proxy: Proxy) -> None:
    """See that a proxy keeps to its bounds."""
    config = world.settings.proxy
    most = config.window_bytes + config.forward_bytes_max + world.batch_bytes_max
    if proxy.under_way > most or len(proxy.view) > config.region.view_max:
        raise Violation(f"M: {proxy.under_way} bytes are under way from {name}")
    for stream, book in proxy.shelf.books.items():
        if book.pending_bytes > most:
            raise Violation(f"M: {book.pending_bytes} bytes of {stream} wait at {name}")


class ClientNode(Node):
    """A client, and its application, which remembers what it has taken."""

    machine: Client

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.taken: dict[Stream, Seq] = dict.fromkeys(world.settings.layout.owners, Seq(0))
        self.slow_s: list[float] = []
        self._waiting: deque[Delivery] = deque()
        self._publishing: dict[tuple[Stream, int], EventBatch] = {}

    def boot(self) -> None:
        settings, world = self.world.settings, self.world
        self._waiting.clear()
        self._publishing.clear()
        self.machine = Client(
            self.name,
            Peer(self.name[0]),
            settings.layout.owners,
            settings.client,
            random.Random(self.rng.getrandbits(64)),
            now=world.loop.now,
            publisher=self.rng.getrandbits(63) + 1,
        )
        for stream, after in self.taken.items():
            self.machine.subscribe(stream, after)
            world.checker.begins(self.name, stream, after)

    def tick(self) -> None:
        self.run(self.machine.tick(self.world.loop.now))
        self._check_bounds()

    def step(self, sender: Peer, message: Message) -> None:
        self.machine.at(self.world.loop.now)
        self.run(self.machine.step(sender, message))

    def run(self, effects: Effects) -> None:
        for stream, batch in effects.deliver:
            self.world.checker.deliver(self.name, stream, batch)
        for answer in effects.answers:
            batch = self._publishing.pop((answer.stream, answer.serial))
            if not isinstance(answer, Published):
                raise Violation(f"E: {self.name} was refused: {answer.reason}")
            self.world.checker.published(answer, batch)
        super().run(effects)
        if effects.deliver:
            is_idle = not self._waiting
            self._waiting += effects.deliver
            if is_idle:
                self._take_later()

    def _take_later(self) -> None:
        """Have the application take the next batch; a slow one takes its time."""
        if not self.slow_s:
            while self._waiting:
                self._take()
            return
        life = self.life
        self.world.loop.after(max(self.slow_s), lambda: self._take_one(life))

    def _take_one(self, life: int) -> None:
        if self.is_up and self.life == life and self._waiting:
            self.do(self._take)
            if self._waiting:
                self._take_later()

    def _take(self) -> None:
        if self._waiting:
            stream, batch = self._waiting.popleft()
            self.taken[stream] = batch.last
            super().run(self.machine.consumed(stream, batch.last))

    def publish(self, stream: Stream, batch: EventBatch) -> None:
        """Publish, unless too much is waiting."""
        self.machine.at(self.world.loop.now)
        try:
            serial, effects = self.machine.publish(stream, batch)
        except Overloaded:
            return
        self._publishing[stream, serial] = batch
        self.run(effects)

    def _check_bounds(self) -> None:
        config, largest = self.world.settings.client, self.world.batch_bytes_max
        reply = config.region.reply_bytes_max + largest
        for stream in self.taken:
            state = self.machine.fetching(stream)
            within = (
                state.waiting_bytes <= config.ahead_bytes_max
                and state.requests <= config.requests_max
                and state.recent.nbytes <= max(config.recent_bytes_max, reply)
                and state.backlog_bytes
                <= config.backlog_bytes_max + config.ahead_bytes_max + config.requests_max * reply
                and len(self.machine.view) <= config.region.view_max
            )
            if not within:
                raise Violation(
                    f"M: {self.name} holds {state.waiting_bytes} bytes early, {state.backlog_bytes} not "
                    f"taken, {state.recent.nbytes} recent, {state.requests} requests of {stream}"
                )
