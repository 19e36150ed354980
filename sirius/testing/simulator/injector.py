"""Makes faults happen, and undoes them when their time is over."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from sirius.engine import Engine
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.faults import LEADER, Fault, Kind
from sirius.testing.simulator.node import SimNode
from sirius.types import Seq
from sirius.wal import CompactionPolicy

_TRIES: Final = 4
_TRY_AGAIN_S: Final = 0.37
"""A fault that is not possible now (that would take more disks than the promise covers) comes later, or another
comes instead: a run has as many faults as were drawn for it."""
_SPREAD_S: Final = 0.3
"""How long it takes until everybody has a new member file."""
_LATEST_S: Final = 0.3
"""A crash that waits for a call to the disk comes after this time anyway."""


class Injector:
    """Interprets faults."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._network = cluster.network
        self.happened: Counter[Kind] = Counter()
        self._is_over = False
        self._rng = random.Random(0)
        self._apply: dict[Kind, Callable[[Fault, SimNode], bool]] = {
            Kind.ISOLATE: self._isolate,
            Kind.SPLIT: self._split,
            Kind.ONE_WAY: self._one_way,
            Kind.DEAF: self._deaf,
            Kind.SWIZZLE: self._swizzle,
            Kind.DROP: self._drop,
            Kind.DUPLICATE: self._duplicate,
            Kind.DELAY: self._delay,
            Kind.KILL: self._kill,
            Kind.POWER_LOSS: self._kill,
            Kind.RESTART: self._restart,
            Kind.ROLLING_RESTART: self._rolling_restart,
            Kind.PAUSE: self._pause,
            Kind.CLOCK_SPEED: self._clock_speed,
            Kind.CLOCK_JUMP: self._clock_jump,
            Kind.SLOW_DISK: self._slow_disk,
            Kind.HUNG_DISK: self._hung_disk,
            Kind.SYNC_ERROR: self._sync_error,
            Kind.FULL_DISK: self._full_disk,
            Kind.CORRUPT_JOURNAL: self._corrupt,
            Kind.CORRUPT_LOG: self._corrupt,
            Kind.LOST_DISK: self._lost_disk,
            Kind.HAND_OVER: self._hand_over,
            Kind.WISH: self._wish,
            Kind.PASSIVE: self._passive,
            Kind.COMPACT: self._compact,
            Kind.BURST: self._burst,
            Kind.SLOW_HANDLER: self._slow_handler,
            Kind.BAD_FILES: self._bad_files,
        }

    def plan(self, schedule: list[Fault]) -> None:
        for fault in schedule:
            self._loop.at(fault.at, partial(self._inject, fault, _TRIES))

    def _inject(self, fault: Fault, tries: int) -> None:
        if self._is_over:
            return
        # Its own randomness, so that leaving out one fault does not change the others.
        self._rng = random.Random(f"{self._cluster.settings.seed}/{fault}")
        node = self._find(fault.where)
        self._cluster.note("!", str(fault)[8:] + self._who(fault, node))
        if node is not None and self._apply[fault.kind](fault, node):
            self.happened[fault.kind] += 1
            return
        self._cluster.note("!", f"{fault.kind} is not possible now")
        in_time = self._loop.now + _TRY_AGAIN_S < self._cluster.settings.duration_s
        if tries > 1 and in_time:
            self._later(_TRY_AGAIN_S, partial(self._inject, fault, tries - 1))
        elif fault.instead is not None:
            self._inject(fault.instead, 1)

    @staticmethod
    def _who(fault: Fault, node: SimNode | None) -> str:
        name = node.name if node is not None else "nobody"
        return f" ({name})" if fault.where == LEADER else ""

    def _find(self, where: str) -> SimNode | None:
        if where != LEADER:
            return self._cluster.nodes[where or self._cluster.settings.names[0]]
        voters = (self._cluster.nodes[name] for name in self._cluster.settings.voters)
        return self._cluster.leader or next((node for node in voters if node.is_up), None)

    def _later(self, delay: float, undo: Callable[[], object]) -> None:
        """Undo something later, unless everything was undone by then."""

        def act() -> None:
            if not self._is_over:
                undo()

        self._loop.after(delay, act)

    def heal(self) -> None:
        """Undo everything: all links, disks and clocks are good, and all nodes are up."""
        self._is_over = True
        self._cluster.note("!", "everything is healed")
        self._network.heal_everything()
        self._cluster.clients.bursts.clear()
        wish = self._cluster.wish_to_end_with()
        for node in self._cluster.nodes.values():
            self._heal_node(node, wish)

    def _heal_node(self, node: SimNode, wish: tuple[str, ...]) -> None:
        node.disk.heal()
        node.clock.run_at(1.0, self._loop.now)
        node.passive = node.held_down = node.handler.slow = 0
        node.bad_files.clear()
        if node.wish is not None:
            node.wish = wish
        node.pauses = min(node.pauses, 1)
        if node.pauses:
            node.go_on()
        node.read_member_file()
        node.start()

    # ------------------------------------------------------------------ network

    def _cut(self, links: list[tuple[str, str]], for_s: float) -> bool:
        for link in links:
            self._network.cut(*link)
            self._later(for_s, partial(self._network.heal, *link))
        return bool(links)

    def _others(self, node: SimNode) -> list[str]:
        return [name for name in self._cluster.nodes if name != node.name]

    def _isolate(self, fault: Fault, node: SimNode) -> bool:
        others = self._others(node)
        links = [(node.name, other) for other in others] + [(other, node.name) for other in others]
        if fault.amount:
            self._clock_speed(fault, node)
            faster = replace(fault, amount=min(-fault.amount, self._cluster.settings.clock_bound))
            for other in others:
                self._clock_speed(faster, self._cluster.nodes[other])
        return self._cut(links, fault.for_s)

    def _split(self, fault: Fault, _node: SimNode) -> bool:
        inside = [name for name in self._cluster.nodes if name in fault.names]
        outside = [name for name in self._cluster.nodes if name not in fault.names]
        pairs = [(a, b) for a in inside for b in outside]
        return self._cut(pairs + [(b, a) for a, b in pairs], fault.for_s)

    def _one_way(self, fault: Fault, node: SimNode) -> bool:
        return self._cut([(node.name, other) for other in self._others(node)], fault.for_s)

    def _deaf(self, fault: Fault, node: SimNode) -> bool:
        return self._cut([(other, node.name) for other in self._others(node)], fault.for_s)

    def _swizzle(self, fault: Fault, node: SimNode) -> bool:
        others = self._others(node)
        links = [(node.name, other) for other in others] + [(other, node.name) for other in others]
        for link in links:
            cut_at = self._rng.uniform(0, fault.for_s / 2)
            heal_at = self._rng.uniform(fault.for_s / 2, fault.for_s)
            self._later(cut_at, partial(self._network.cut, *link))
            self._later(heal_at, partial(self._network.heal, *link))
        return bool(links)

    def _rate(self, rates: list[float], fault: Fault) -> bool:
        rates.append(fault.amount)
        self._later(fault.for_s, partial(rates.remove, fault.amount))
        return True

    def _drop(self, fault: Fault, _node: SimNode) -> bool:
        return self._rate(self._network.drop, fault)

    def _duplicate(self, fault: Fault, _node: SimNode) -> bool:
        return self._rate(self._network.duplicate, fault)

    def _delay(self, fault: Fault, _node: SimNode) -> bool:
        return self._rate(self._network.delay, fault)

    # ------------------------------------------------------------------ processes

    def _kill(self, fault: Fault, node: SimNode) -> bool:
        if not node.is_up:
            return False
        power_loss = fault.kind == Kind.POWER_LOSS
        if fault.at_call:
            node.disk.crash_at(fault.at_call, power_loss=power_loss)
        delay = _LATEST_S if fault.at_call else 0.0
        self._later(delay, partial(self._down, node, node.life, fault, power_loss))
        return True

    def _down(self, node: SimNode, life: int, fault: Fault, power_loss: bool) -> None:
        if node.life == life and node.is_up:
            node.die(f"dies of {fault.kind}", power_loss=power_loss)
            self._up_after(node, fault.for_s)

    def _up_after(self, node: SimNode, for_s: float) -> None:
        node.held_down += 1
        self._later(for_s, partial(self._release, node))

    @staticmethod
    def _release(node: SimNode) -> None:
        node.held_down = max(0, node.held_down - 1)
        node.start()

    def _restart(self, fault: Fault, node: SimNode) -> bool:
        if not node.is_up or node.pauses:
            return False
        node.stop()
        self._up_after(node, fault.for_s)
        return True

    def _rolling_restart(self, fault: Fault, _node: SimNode) -> bool:
        voters = self._cluster.settings.voters
        gap = fault.for_s / len(voters)
        short = Fault(fault.at, Kind.RESTART, for_s=gap / 4)
        for number, name in enumerate(voters):
            self._later(number * gap, partial(self._restart, short, self._cluster.nodes[name]))
        return True

    def _pause(self, fault: Fault, node: SimNode) -> bool:
        node.pause()
        self._later(fault.for_s, node.go_on)
        return True

    def _clock_speed(self, fault: Fault, node: SimNode) -> bool:
        node.clock.run_at(1.0 + fault.amount, self._loop.now)
        self._later(fault.for_s, lambda: node.clock.run_at(1.0, self._loop.now))
        return True

    @staticmethod
    def _clock_jump(fault: Fault, node: SimNode) -> bool:
        node.clock.jump(fault.amount)
        return True

    # ------------------------------------------------------------------ disks

    def _slow_disk(self, fault: Fault, node: SimNode) -> bool:
        return self._rate(node.disk.sync_delays, fault)

    def _hung_disk(self, fault: Fault, node: SimNode) -> bool:
        node.disk.hangs += 1
        self._later(fault.for_s, partial(self._unhang, node))
        return True

    @staticmethod
    def _unhang(node: SimNode) -> None:
        node.disk.hangs = max(0, node.disk.hangs - 1)

    def _sync_error(self, fault: Fault, node: SimNode) -> bool:
        node.disk.fail_sync("journal" if fault.amount < 0.5 else "segments")
        return node.is_up

    def _full_disk(self, fault: Fault, node: SimNode) -> bool:
        node.disk.fill_up()
        self._later(fault.for_s, node.disk.make_room)
        return True

    def _corrupt(self, fault: Fault, node: SimNode) -> bool:
        if node.pauses or not self._cluster.may_lose(node):
            return False
        self._cluster.lose(node)
        if node.is_up:
            node.die(f"dies of {fault.kind}")
        where = "journal/journal" if fault.kind == Kind.CORRUPT_JOURNAL else "segments"
        self._cluster.note(node.name, f"a bit flips in {node.disk.flip_bit(where)}")
        self._up_after(node, fault.for_s)
        return True

    def _lost_disk(self, fault: Fault, node: SimNode) -> bool:
        if not self._cluster.may_lose(node):
            return False
        self._cluster.lose(node)
        if node.is_up:
            node.die("loses its disk")
        node.disk.lose()
        node.durable = 0
        self._up_after(node, fault.for_s)
        return True

    def _compact(self, fault: Fault, node: SimNode) -> bool:
        nodes = [node] if fault.where else list(self._cluster.nodes.values())
        return any([self._compact_one(fault, each) for each in nodes])

    def _compact_one(self, fault: Fault, node: SimNode) -> bool:
        if not node.is_up or node.pauses:
            return False
        upto = self._droppable(node) if fault.amount else 0
        truth = self._cluster.checkers.truth
        truth.deletes_dropped_upto = max(truth.deletes_dropped_upto, upto)
        if fault.at_call:
            node.disk.crash_at(fault.at_call, power_loss=self._rng.random() < 0.5)
        node.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=Seq(upto)))
        node.disk.fs.crash_at = None
        return True

    def _droppable(self, node: SimNode) -> int:
        """Up to where deletes may go: what everybody knows, or all there is. Then whoever is behind must resync."""
        if self._rng.random() < 0.5:
            return self._cluster.slowest
        return self._cluster.durable(node)

    # ------------------------------------------------------------------ orders

    @staticmethod
    def _hand_over(_fault: Fault, node: SimNode) -> bool:
        node.enter(Engine.hand_over)
        return node.is_leader

    def _wish(self, fault: Fault, _node: SimNode) -> bool:
        cluster = self._cluster
        if cluster.has_lost_voters or not cluster.is_rooted(fault.names, cluster.lost):
            return False
        cluster.wishes_to_come.append(fault.names)
        self._later(_SPREAD_S, partial(cluster.wishes_to_come.remove, fault.names))
        for node in self._cluster.nodes.values():
            if node.wish is not None:
                self._later(
                    self._rng.uniform(0, 0.99 * _SPREAD_S),
                    partial(self._set_wish, node, fault.names),
                )
        return True

    @staticmethod
    def _set_wish(node: SimNode, names: tuple[str, ...]) -> None:
        node.wish = names
        node.read_member_file()

    def _passive(self, fault: Fault, node: SimNode) -> bool:
        node.passive += 1
        node.read_member_file()
        self._later(fault.for_s, partial(self._active, node))
        return True

    @staticmethod
    def _active(node: SimNode) -> None:
        node.passive = max(0, node.passive - 1)
        node.read_member_file()

    def _slow_handler(self, fault: Fault, node: SimNode) -> bool:
        node.handler.slow += 1
        self._later(fault.for_s, node.handler.hurry)
        return True

    def _bad_files(self, fault: Fault, node: SimNode) -> bool:
        node.bad_files.append(fault.amount)
        self._later(fault.for_s, partial(node.bad_files.remove, fault.amount))
        return True

    def _burst(self, fault: Fault, _node: SimNode) -> bool:
        return self._rate(self._cluster.clients.bursts, fault)
