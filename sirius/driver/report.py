"""What can be said about a node: how it stands by the clock, and its status."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sirius.driver.applier import Applier
from sirius.engine import Engine
from sirius.ops.status import State, Status
from sirius.paxos.machine import Machine
from sirius.paxos.members import Configuration, Member

if TYPE_CHECKING:
    from sirius.driver.assembly import Node


_log = logging.getLogger("sirius.node")


class Watch:
    """What is seen of a node from tick to tick."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.replayed_at: float | None = None
        self.ready_at: float | None = None
        self.consensus_bytes = 0
        self._fresh_at: float | None = None
        self._leader: Member | None = None
        self._leader_at = self.started_at
        self._configuration = 0
        self.elections = 0

    def look(self, engine: Engine, applier: Applier, now: float) -> None:
        """See how things stand."""
        machine, catchup = engine.machine, engine.catchup
        self.consensus_bytes = machine.held_bytes
        if self.replayed_at is None and not applier.is_replaying:
            self.replayed_at = now
        is_level = applier.applied >= max(machine.known, catchup.known, catchup.whole)
        if is_level and _in_touch(engine) and not applier.is_replaying:
            self._fresh_at = now
            if self.ready_at is None:
                self.ready_at = now
        if machine.leader != self._leader:
            self._leader, self._leader_at = machine.leader, now
            self.elections += machine.leader is not None
            self._tell_leader(machine)
        configuration = machine.configuration
        if configuration is not None and configuration.number != self._configuration:
            self._configuration = configuration.number
            self._tell_members(machine.me, configuration)

    def _tell_leader(self, machine: Machine) -> None:
        name, leader = machine.me.name, machine.leader
        facts = {"node": name, "leader": leader and leader.name, "ballot": machine.ballot.round}
        if leader is None:
            _log.info("%s: nobody leads, as far as this node knows", name, extra=facts)
        else:
            _log.info(
                "%s: %s leads, round %d", name, leader.name, machine.ballot.round, extra=facts
            )

    def _tell_members(self, me: Member, configuration: Configuration) -> None:
        voters, learners = names_of(configuration.voters), names_of(configuration.learners)
        _log.info(
            "%s: the voters are %s%s",
            me.name,
            ", ".join(voters),
            f"; about to vote: {', '.join(learners)}" if learners else "",
            extra={"node": me.name, "voters": voters, "learners": learners},
        )

    def staleness(self, now: float) -> float:
        """How long ago the node knew that it had everything; infinite if it never did."""
        return float("inf") if self._fresh_at is None else now - self._fresh_at

    def leader_since_s(self, now: float) -> float | None:
        """For how long the present leader has been known; None if there is none."""
        return None if self._leader is None else now - self._leader_at

    @property
    def boot_s(self) -> float | None:
        """How long it took until the node was ready; None if it is not."""
        return None if self.ready_at is None else self.ready_at - self.started_at

    @property
    def replay_s(self) -> float | None:
        """How long the replay took; None if it is not over."""
        return None if self.replayed_at is None else self.replayed_at - self.started_at


def _in_touch(engine: Engine) -> bool:
    """Say whether a node hears from its cluster how far that is: from its leader, or, without a vote, from a source.

    Nodes that belong to no cluster yet may be each other's sources, and have nothing to tell.
    """
    machine = engine.machine
    if machine.is_in_touch and machine.is_settled:
        return True
    return bool(machine.cluster) and not machine.is_voter and engine.catchup.source is not None


def report(node: Node) -> Status:
    """Return a node's status."""
    driver, engine, watch = node.driver, node.driver.engine, node.watch
    applier, log, now = driver.applier, driver.disk.log, time.monotonic()
    machine = engine.machine if engine else None
    configuration = machine.configuration if machine else None
    known = max(machine.known, engine.catchup.known) if machine and engine else 0
    source = engine.catchup.source if engine else None
    progress = engine.progress if engine else None
    return Status(
        name=node.name,
        state=_state(node),
        problem=_problem(node),
        role=_role(engine, node.wished),
        leader=machine.leader.name if machine and machine.leader else None,
        cluster=f"{machine.cluster:016x}" if machine else "",
        node_id=f"{machine.me.node:016x}" if machine else "",
        voters=names_of(configuration.voters) if configuration else (),
        learners=names_of(configuration.learners) if configuration else (),
        wished=node.wished,
        decided=machine.decided if machine else log.durable_seq,
        known=known,
        durable=log.durable_seq,
        applied=applier.applied,
        lag=max(0, max(known, log.durable_seq) - applier.applied),
        staleness_s=watch.staleness(now),
        replayed=applier.replayed,
        replay_total=applier.replay_end,
        ballot=(machine.ballot.round, machine.ballot.node) if machine else (0, 0),
        outstanding=driver.inbox.outstanding,
        backlog_bytes=applier.backlog_bytes,
        handler_busy_s=applier.busy_s,
        handler_exceptions=applier.exceptions,
        log_bytes=log.size,
        segments=len(log.manifest.segments),
        tombstone_floor=log.tombstone_floor,
        source=source.name if source else None,
        followers={**engine.catchup.followers} if engine else {},
        peers=node.peers(),
        members_problem=node.members_problem,
        elections=watch.elections,
        leader_since_s=watch.leader_since_s(now),
        boot_s=watch.boot_s,
        replay_s=watch.replay_s,
        consensus_bytes=watch.consensus_bytes,
        repeated_accepts=machine.repeated_accepts if machine else 0,
        catch_up_window=engine.catchup.window_slots if engine else 0,
        compactions=node.upkeep.passes,
        compaction_s=node.upkeep.last_s,
        compaction_began_at=node.upkeep.began_at,
        compaction_problem=node.upkeep.problem,
        catch_up_bytes=progress.done if progress else 0,
        catch_up_bytes_total=progress.total if progress else 0,
    )


def _state(node: Node) -> State:
    driver = node.driver
    if driver.is_closed:
        return State.CLOSED
    if driver.trouble is not None:
        return State.DISK_TROUBLE
    if driver.applier.failure is not None:
        return State.HANDLER_STOPPED
    if driver.applier.is_replaying:
        return State.REPLAYING
    return State.READY if node.is_ready else State.CATCHING_UP


def _problem(node: Node) -> str | None:
    """The worst that is wrong, in a sentence."""
    driver, applier = node.driver, node.driver.applier
    if driver.gave_up or driver.trouble:
        return driver.gave_up or driver.trouble
    if applier.failure is not None:
        return str(applier.failure)
    if applier.busy_s >= node.config.handler.hang_s:
        return f"the handler has been busy with one batch for {applier.busy_s:.0f} s"
    if node.members_problem is not None:
        return f"the member file is bad: {node.members_problem}"
    return _of_others(node) or _strangers(node) or node.upkeep.problem


def _of_others(node: Node) -> str | None:
    """A node that is alone with the log of others waits for ever, and should say for whom."""
    engine = node.driver.engine
    if engine is None or node.wished != (node.name,) or engine.machine.is_voter:
        return None
    configuration = engine.machine.configuration
    if configuration is None or engine.machine.leader is not None:
        return None
    return (
        f"this log belongs to the cluster of {', '.join(names_of(configuration.voters))}, in which this node has "
        f"no vote: name them as members to follow them, or set new_cluster = true if that cluster is gone"
    )


def _strangers(node: Node) -> str | None:
    """Nodes that this one should work with, and that belong to another cluster: a member file was mixed up."""
    engine, strangers = node.driver.engine, node.driver.acquaintances.strangers
    if engine is None or not strangers:
        return None
    configuration = engine.machine.configuration
    voters = names_of(configuration.voters) if configuration else ()
    found = [name for name in (*node.wished, *node.config.follow, *voters) if name in strangers]
    if not found:
        return None
    return (
        f"{found[0]} belongs to the cluster {strangers[found[0]]:016x}, and this node to "
        f"{engine.machine.cluster:016x}: neither takes anything from the other. Is the member file another cluster's?"
    )


def names_of(members: tuple[Member, ...]) -> tuple[str, ...]:
    """Return the names of some members."""
    return tuple(member.name for member in members)


def _role(engine: Engine | None, wished: tuple[str, ...]) -> str:
    if engine is None or not wished:
        return "passive"
    machine = engine.machine
    if machine.is_leader:
        return "leader"
    if machine.is_voter:
        return "voter"
    configuration = machine.configuration
    is_learner = configuration is not None and machine.me in configuration.learners
    return "learner" if is_learner else "follower"
