"""Runs simulated clusters whose nodes have a handler each."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Generic

from sirius.errors import CorruptLog, InvariantViolation, RangeUnavailable
from sirius.paxos.config import PaxosConfig
from sirius.testing._handler_lives import H, Judge, Life
from sirius.testing._handler_updates import LIMITS, Draw, DrawingClients
from sirius.testing.simulator.checkers import Checkers
from sirius.testing.simulator.clients import BATCH_MAX
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.faults import Fault, Kind
from sirius.testing.simulator.node import SimNode
from sirius.testing.simulator.settings import Settings, draw_settings
from sirius.testing.simulator.simulation import Simulation
from sirius.testing.simulator.swarm import draw_schedule
from sirius.testing.simulator.truth import Fact, Replay, Truth, decode
from sirius.wal import Block, CompactionPolicy, Log

_DURATION_S: Final = 4.0
_VOTERS_MAX: Final = 3
_FAULTS: Final = 14
_PASSES: Final = 2
"""Compaction drops what was put before a delete in one pass, and the delete in the next."""


def run(judge: Judge[H], draw: Draw | None) -> None:
    """Run one seed: a cluster under faults, then every node's log again, and once more compacted."""
    settings = settings_of(judge.seed)
    simulation = Simulation(settings, schedule_of(settings))
    cluster = simulation.cluster
    cluster.checkers = checkers = HandlerCheckers(cluster, judge)
    if draw is not None:
        cluster.clients = DrawingClients(cluster, draw)
    with _quiet():
        violation = simulation.run().violation
        if violation:
            raise InvariantViolation(
                f"this is not the handler's fault: Sirius broke a promise in seed {judge.seed}: {violation}"
            )
        checkers.compare_all()
        for node in cluster.nodes.values():
            _read_again(judge, node)
    judge.finish()


@contextmanager
def _quiet() -> Iterator[None]:
    """Damage is to be expected: keep the warnings about it from the user's terminal."""
    logger = logging.getLogger("sirius.wal")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# ---------------------------------------------------------------------- what happens


def settings_of(seed: int) -> Settings:
    """Draw a run that is shorter than the simulator's own, with room for the user's updates."""
    drawn, roomy = draw_settings(seed), PaxosConfig()
    paxos = replace(
        drawn.paxos,
        batch_updates_max=roomy.batch_updates_max,
        pipeline_bytes_max=roomy.pipeline_bytes_max,
        intake_bytes_max=roomy.intake_bytes_max,
        intake_requests_max=roomy.intake_requests_max,
        pending_bytes_max=roomy.pending_bytes_max,
        pending_requests_max=roomy.pending_requests_max,
        forward_bytes_max=roomy.forward_bytes_max,
    )
    return replace(
        drawn,
        voters=drawn.voters[:_VOTERS_MAX],
        spares=drawn.spares[:1],
        followers=drawn.followers[:1],
        duration_s=_DURATION_S,
        liveness=True,
        faults=_FAULTS,
        paxos=paxos,
    )


def schedule_of(settings: Settings) -> list[Fault]:
    """Draw faults, and have every node compact its log and start again at least once."""
    schedule = draw_schedule(settings)
    step_s = settings.duration_s / 2 / len(settings.names)
    for number, name in enumerate(settings.names):
        at = round(settings.duration_s / 2 + number * step_s, 3)
        schedule.append(Fault(at, Kind.COMPACT, name, amount=float(number % 2)))
        schedule.append(Fault(round(at + step_s / 4, 3), Kind.RESTART, name, for_s=step_s / 4))
    return sorted(schedule, key=lambda fault: fault.at)


# ---------------------------------------------------------------------- watching


class AnyTruth(Truth):
    """The simulator knows its own updates by their bodies; those of users may be equal."""

    def _check_once(self, fact: Fact) -> None:
        if fact.session:
            super()._check_once(fact._replace(op=0))


class HandlerCheckers(Checkers, Generic[H]):
    """The simulator's checkers, and a handler in every node."""

    def __init__(self, cluster: Cluster, judge: Judge[H]) -> None:
        request_bytes_max = BATCH_MAX * (LIMITS.key_bytes_max + LIMITS.body_bytes_max)
        super().__init__(cluster.settings.paxos, request_bytes_max)
        self.truth = AnyTruth()
        self._nodes = cluster.nodes
        self._judge = judge
        self._lives: dict[str, tuple[int, Replay, Life[H]]] = {}

    def decided(self, who: str, replay: Replay, block: Block) -> None:
        """A node decided a block, or found it in its log when it started: its handler is given it."""
        super().decided(who, replay, block)
        node = self._nodes.get(who)
        if node is None or node.engine is None:
            return
        life = self._life(node, replay)
        life.whole_from = replay.whole_from
        life.take(self._facts(block), block.last)
        self._judge.follow(self.truth.facts)
        if block.last == node.engine.log.next_seq - 1:
            self._judge.compare(life)
            self._judge.ask(life)

    def _life(self, node: SimNode, replay: Replay) -> Life[H]:
        number, of, life = self._lives.get(node.name, (0, None, None))
        if life is None or of is not replay:
            resynced = number == node.life
            how = "with the log of another node" if resynced else "after a restart"
            life = self._judge.begin(f"node {node.name}", how if number else "")
            self._lives[node.name] = node.life, replay, life
        return life

    def check_rejected(self) -> None:
        """Bodies do not tell which update was rejected."""

    def compare_all(self) -> None:
        """All nodes have everything: see that they hold the same."""
        for _, _, life in self._lives.values():
            self._judge.compare(life)


# ---------------------------------------------------------------------- afterwards


def _read_again(judge: Judge[H], node: SimNode) -> None:
    """Open a node's log as after a power loss, replay it, compact it, and replay it again."""
    node.disk.kill(power_loss=False)
    node.disk.make_room()
    try:
        log, _ = node.disk.open(lambda: 0.0, lambda: 0)
        _replay(judge, log, f"node {node.name}", "after a restart")
        for _ in range(_PASSES):
            log.rotate()
            log.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=log.durable_seq))
            _replay(judge, log, f"node {node.name}", "after a restart")
    except (CorruptLog, RangeUnavailable):
        # Faults have damaged this log; a node would fetch what is missing from another.
        if not node.disk.rotten:
            raise


def _replay(judge: Judge[H], log: Log, who: str, how: str) -> None:
    life = judge.begin(who, how)
    for block in log.blocks():
        life.take(decode(block), block.last)
    judge.compare(life)
