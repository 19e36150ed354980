"""Seeded bugs of the broadcast layer, put back one at a time to see that its simulator finds them.

As with those of consensus (`sirius.testing.simulator.traps`): a trap replaces methods of the real classes while it is
sprung, and one that no seed finds is a defect of the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Final

from sirius.broadcast.chain.configuration import Member
from sirius.broadcast.chain.replica import Replica
from sirius.broadcast.client.fetching import Fetching
from sirius.broadcast.client.machine import Client
from sirius.broadcast.client.publisher import Publisher
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.history import ANYTHING, memory
from sirius.broadcast.membership import View
from sirius.broadcast.messages import Peer
from sirius.broadcast.proxy.book import Book
from sirius.broadcast.proxy.region import Region
from sirius.broadcast.proxy.upstream import Upstream
from sirius.broadcast.recent import Recent
from sirius.testing.broadcast import chains
from sirius.testing.broadcast.simulation import Result, run
from sirius.testing.simulator.traps.trap import Patch, Trap

_arrive: Final = chains.Registry.arrive
_configured: Final = Replica.configured
_gate: Final = Replica._gate
_tick: Final = Client.tick
_wanted: Final = Replica._wanted


def _yes(*_: object) -> bool:
    return True


def _no(*_: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    return None


# ---------------------------------------------------------------------- chains


def _count_at_the_head(self: Replica, stream: Stream) -> int:
    return ANYTHING if self.is_head else _gate(self, stream)


def _forget_what_waits(self: Replica, chain: Any) -> Effects:
    if chain.number > self.chain.number:
        self._start_over()
    return _configured(self, chain)


def _take_any_proposal(self: chains.Registry, source: str, proposal: Any) -> None:
    if proposal.number:
        proposal = proposal._replace(number=self.chain.number + 1)
    _arrive(self, source, proposal)


def _hand_over_at_once(self: Replica) -> Any:
    return self.chain.extended() if self.is_tail and self.chain.joining else _wanted(self)


def _count_alone_while_handing_over(self: Replica, stream: Stream) -> int:
    return ANYTHING if self.is_tail else _gate(self, stream)


def _keep_what_came_to_nothing(_self: Replica) -> None:
    return None


def _live_once(peer: Peer, _life: int) -> Any:
    return Member(peer, 1)


def _lives(self: chains.Registry, member: Any) -> bool:
    return self.world.replicas[member.peer].is_up


# ---------------------------------------------------------------------- regions


def _deliver_early(self: Any, batch: EventBatch) -> None:
    if batch.last > self.position:
        self._deliver(batch)


def _gossip_alone(self: Region) -> None:
    self.view.tick()


def _notify_of_news_alone(self: Client, now: float) -> Effects:
    self._notify_at = inf
    return _tick(self, now)


def _trap(number: str, name: str, what: str, *patches: tuple[Any, str, Any]) -> Trap:
    return Trap(number, name, what, tuple(Patch(*patch) for patch in patches))


TRAPS: Final = {
    trap.number: trap
    for trap in (
        _trap(
            "head-answers",
            "acknowledged at the head",
            "what the head takes counts at once, wherever the tail is",
            (Replica, "_gate", _count_at_the_head),
        ),
        _trap(
            "tail-forgets",
            "a new tail that skips what waits",
            "a new configuration begins with what counts, and what waited is dropped",
            (Replica, "configured", _forget_what_waits),
        ),
        _trap(
            "no-numbers",
            "proposals without numbers",
            "every proposal counts, whatever was decided since it was made",
            (chains.Registry, "arrive", _take_any_proposal),
        ),
        _trap(
            "early-tail",
            "a tail that has not caught up",
            "whoever joins is the tail at once",
            (Replica, "_wanted", _hand_over_at_once),
        ),
        _trap(
            "alone-to-the-end",
            "the old tail goes on alone while it hands over",
            "what comes during the hand-over counts before the new tail has it",
            (Replica, "_gate", _count_alone_while_handing_over),
        ),
        _trap(
            "old-pending",
            "who was removed keeps what never counted",
            "a replica that joins again still has what it took as a head of its own",
            (Replica, "_start_over", _keep_what_came_to_nothing),
        ),
        _trap(
            "amnesia",
            "a replica that starts again keeps its place",
            "lives are not told apart: it has lost everything, and is a member",
            (chains, "Member", _live_once),
            (chains.Registry, "lives", _lives),
        ),
        _trap(
            "twice",
            "a repeated publication is taken again",
            "nobody remembers what was published",
            (Book, "published", _nothing),
        ),
        _trap(
            "25",
            "the last event of a quiet stream",
            "nobody says how far he is unless something is new, neither proxies nor clients",
            (Region, "tick", _gossip_alone),
            (Client, "tick", _notify_of_news_alone),
        ),
        _trap(
            "25b",
            "proxies do not hear of a quiet stream",
            "advertisements are not heard",
            (Upstream, "advertised", _nothing),
        ),
        _trap(
            "gap",
            "events are delivered behind a gap",
            "a client takes whatever comes",
            (Fetching, "_take", _deliver_early),
        ),
        _trap(
            "bare-hole",
            "a hole without a matching GC event",
            "a GC event goes although the one that collects it does not cover what it collected",
            (memory, "covers", _yes),
        ),
        _trap(
            "open-predicate",
            "a keyed event goes by a price that only it had",
            "any predicate collects keyed events",
            (memory, "is_closed", _yes),
        ),
        _trap(
            "slow-application",
            "a slow application does not stop its client",
            "a client asks for more whatever waits",
            (Fetching, "_has_room", _yes),
        ),
        _trap(
            "hoarding",
            "nothing that is recent is ever discarded",
            "the place for what is recent has no end",
            (Recent, "_is_full", _no),
        ),
        _trap(
            "ask-once",
            "a lost request is not asked for again",
            "a client waits for ever",
            (Fetching, "tick", _nothing),
        ),
        _trap(
            "publish-once",
            "a lost publication is not repeated",
            "a publisher waits for ever",
            (Publisher, "tick", _nothing),
        ),
        _trap(
            "subscribe-once",
            "a lost subscription is not repeated",
            "a proxy waits for ever",
            (Upstream, "tick", _nothing),
        ),
        _trap(
            "fixed-views",
            "views never change",
            "nobody hears of anybody",
            (View, "gossip", _nothing),
        ),
    )
}
"""All of them by name."""


def hunt(trap: Trap, seeds: Iterable[int]) -> tuple[int, Result] | None:
    """Run seeds with a trap until one breaks a promise; return how many that took, and the run."""
    with trap.sprung():
        for count, seed in enumerate(seeds, 1):
            result = run(seed)
            if result.violation is not None:
                return count, result
    return None
