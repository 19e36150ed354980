"""A node as a whole: the loop, its transport, the member file, compaction, and what can be said about it."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sirius.catchup.sources import Source
from sirius.config import MembersFile, SiriusConfig
from sirius.driver.applier import ApplySettings
from sirius.driver.calls import Patience
from sirius.driver.loop import Driver, DriverSettings
from sirius.driver.replaying import Replay
from sirius.driver.upkeep import Upkeep
from sirius.engine import Engine, Settings
from sirius.errors import UsageError
from sirius.handler import RequestHandler
from sirius.ops.status import PeerStatus, State, Status
from sirius.paxos.members import Member
from sirius.paxos.messages import Hello
from sirius.types import NodeId, Seq
from sirius.wal import CompactionPolicy

if TYPE_CHECKING:
    from sirius.driver.network import Network, NodeBackend
    from sirius.transport.publishing import Membership

_log = logging.getLogger("sirius.node")
_EMBEDDED: Final = "embedded"
"""The name of a node that has no address."""
_LINGER_S: Final = 0.05
"""How long the log may lag behind: what is decided is in the journals of a majority. Saves every second sync."""
_KEEP_S: Final = 10.0
"""How often links that nobody uses are let go."""
_GREET_S: Final = 1.0
"""How often the nodes of `follow` are asked who they are: they may have lost their disk since."""


class Node:
    """Everything of one node. Made in the caller's thread; closed by `close`."""

    def __init__(self, handler: RequestHandler, config: SiriusConfig) -> None:
        self.config = config
        self.name = config.name or _EMBEDDED
        self._members = self._read_members()
        self._fresh_at: float | None = None
        self.is_ready = False
        self._polled_at = time.monotonic()
        self._greeted_at = self._kept_at = 0.0
        self._network = self._join_network()
        self._sources: dict[str, Member] = {}
        """The nodes of `follow` that have answered."""
        self.driver = Driver(handler, _settings(config, self.name), self._network, self._look)
        self.upkeep = Upkeep(
            lambda: self.driver.disk.log,
            self._policy,
            self._compacted,
            config.compaction.interval_s if config.compaction.enabled else None,
        )
        self.driver.start(self.wished)
        self.upkeep.start()

    def _join_network(self) -> Network | None:
        if self.config.is_embedded:
            return None
        # The package is heavy, and a node without an address has no use for it.
        from sirius.driver.network import Network

        return Network(self.config, self._backend)

    def _backend(self) -> NodeBackend:
        from sirius.driver.network import NodeBackend

        driver = self.driver
        return NodeBackend(self, driver.publish, lambda: driver.disk.log, driver.pool)

    def _read_members(self) -> MembersFile | None:
        path = self.config.members_file
        return None if path is None else MembersFile(path, check=self.config.check_members)

    @property
    def wished(self) -> tuple[str, ...]:
        """The names that should vote."""
        if self._members is not None:
            return self._members.members.names
        if self.config.members is not None:
            return tuple(self.config.members)
        return (self.name,)

    def close(self, timeout_s: float) -> None:
        """Stop in order."""
        self.upkeep.close()
        self.driver.close(timeout_s)

    # ------------------------------------------------------------------ on the loop

    def _look(self, engine: Engine, now: float) -> None:
        """Called with every tick: see how things stand."""
        applied = self.driver.applier.applied
        is_level = applied >= max(engine.machine.known, engine.catchup.known, engine.catchup.whole)
        in_touch = engine.machine.is_in_touch or engine.catchup.source is not None
        if is_level and in_touch and not self.driver.applier.is_replaying:
            self._fresh_at = now
            self.is_ready = True
        if self._members is not None and now - self._polled_at >= self.config.members_poll_s:
            self._polled_at = now
            self._poll_members(self._members)
        if self.config.follow:
            self._follow(engine, now)
        if self._network is not None and now - self._kept_at >= _KEEP_S:
            self._kept_at = now
            self._network.keep(self.wished)

    def _poll_members(self, file: MembersFile) -> None:
        problem = file.problem
        if (members := file.poll()) is not None:
            _log.info(
                "the member file %s has changed: %s",
                file.path,
                ", ".join(members.names) or "nobody",
            )
            self.driver.wish(members.names)
        if file.problem not in (None, problem):
            _log.warning("the member file is bad, the one before stays in force: %s", file.problem)

    def _follow(self, engine: Engine, now: float) -> None:
        """Prefer the nodes of `follow` to members, once it is known which life of each there is."""
        for name in self.config.follow:
            if (met := self.driver.met.get(name)) is not None:
                self._sources[name] = met
        engine.follow(Source(member, distance=-1.0) for member in self._sources.values())
        if now - self._greeted_at >= _GREET_S:
            self._greeted_at = now
            for name in self.config.follow:
                to = Member(NodeId(0), name)
                self.driver.send(to, engine.machine.envelope(to, Hello(fresh=False)))

    # ------------------------------------------------------------------ compaction

    def _policy(self) -> CompactionPolicy:
        followers_past = self.driver.call(_followers_past).result()
        return self.config.compaction_policy(time.time_ns() // 1000, followers_past)

    def _compacted(self) -> None:
        self.driver.call(Engine.compacted).result()

    # ------------------------------------------------------------------ for any thread

    @property
    def is_leader(self) -> bool:
        engine = self.driver.engine
        return engine is not None and engine.machine.is_leader

    @property
    def gave_up(self) -> str | None:
        """Why this node will not do anything any more, if so."""
        return self.driver.gave_up

    def hand_over(self, to: str | None) -> None:
        """Hand the leadership over to a member, or to whoever is furthest."""
        self.driver.call(lambda engine: _hand_over(engine, to)).result()

    def start_hand_over(self, to: str | None) -> None:
        """The same, on the loop's thread."""
        self.driver.with_engine(lambda engine: _hand_over(engine, to))

    def membership(self) -> Membership:
        """Who votes and who leads, as far as this node knows."""
        from sirius.transport.publishing import Membership

        engine = self.driver.engine
        if engine is None:
            return Membership(None, None)
        return Membership(engine.machine.configuration, engine.machine.leader)

    def status_dict(self) -> dict[str, Any]:
        """The status as plain values."""
        return self.status().as_dict()

    def staleness(self) -> float:
        """How long ago this node knew that it had everything; infinite if it never did since it started."""
        return float("inf") if self._fresh_at is None else time.monotonic() - self._fresh_at

    def status(self) -> Status:
        """Look at everything, from any thread: numbers may be a moment apart."""
        driver, engine = self.driver, self.driver.engine
        applier, log = driver.applier, driver.disk.log
        machine = engine.machine if engine else None
        configuration = machine.configuration if machine else None
        known = max(machine.known, engine.catchup.known) if machine and engine else 0
        source = engine.catchup.source if engine else None
        return Status(
            name=self.name,
            state=self._state(),
            problem=self._problem(),
            role=_role(engine, self.wished),
            leader=machine.leader.name if machine and machine.leader else None,
            cluster=f"{machine.cluster:016x}" if machine else "",
            node_id=f"{machine.me.node:016x}" if machine else "",
            voters=_names(configuration.voters) if configuration else (),
            learners=_names(configuration.learners) if configuration else (),
            wished=self.wished,
            decided=machine.decided if machine else log.durable_seq,
            known=known,
            durable=log.durable_seq,
            applied=applier.applied,
            lag=max(0, max(known, log.durable_seq) - applier.applied),
            staleness_s=self.staleness(),
            replayed=applier.replayed,
            replay_total=applier.replay_end,
            ballot=(machine.ballot.round, machine.ballot.node) if machine else (0, 0),
            outstanding=driver.inbox.outstanding,
            backlog_bytes=applier.backlog_bytes,
            handler_busy_s=applier.busy_s,
            handler_exceptions=applier.exceptions,
            log_bytes=sum(info.bytes for info in log.manifest.segments),
            segments=len(log.manifest.segments),
            tombstone_floor=log.tombstone_floor,
            source=source.name if source else None,
            followers={**engine.catchup.followers} if engine else {},
            peers=self._peers(),
            members_problem=self._members.problem if self._members else None,
        )

    def _peers(self) -> tuple[PeerStatus, ...]:
        return () if self._network is None else self._network.peers()

    def _state(self) -> State:
        if self.driver.is_closed:
            return State.CLOSED
        if self.driver.trouble is not None:
            return State.DISK_TROUBLE
        if self.driver.applier.failure is not None:
            return State.HANDLER_STOPPED
        if self.driver.applier.is_replaying:
            return State.REPLAYING
        return State.READY if self.is_ready else State.CATCHING_UP

    def _problem(self) -> str | None:
        """The worst that is wrong, in a sentence."""
        applier = self.driver.applier
        if self.gave_up or self.driver.trouble:
            return self.gave_up or self.driver.trouble
        if applier.failure is not None:
            return str(applier.failure)
        if applier.busy_s >= self.config.handler.hang_s:
            return f"the handler has been busy with one batch for {applier.busy_s:.0f} s"
        if self._members is not None and self._members.problem is not None:
            return f"the member file is bad: {self._members.problem}"
        return self.upkeep.problem


def _settings(config: SiriusConfig, name: str) -> DriverSettings:
    handler = config.handler
    return DriverSettings(
        name=name,
        folder=os.fspath(config.data),
        log=replace(config.log_config(), linger_s=_LINGER_S),
        machines=Settings(
            config.paxos_config(), config.catchup, config.region, bool(config.new_cluster)
        ),
        apply=ApplySettings(
            Patience(handler.retries, handler.retry_s),
            handler.backlog_bytes_max,
            handler.behind_max,
            Replay(handler.replay),
            handler.replay_threads or os.cpu_count() or 1,
        ),
        ack_applied=config.requests.ack == "applied",
        outstanding_max=config.requests.outstanding_max,
        outstanding_bytes_max=config.requests.outstanding_bytes_max,
    )


def _followers_past(engine: Engine) -> Seq:
    """How far every follower is that this node knows of."""
    lowest = engine.catchup.lowest_position
    return engine.log.durable_seq if lowest is None else min(lowest, engine.log.durable_seq)


def _hand_over(engine: Engine, to: str | None) -> None:
    configuration = engine.machine.configuration
    voters = configuration.voters if configuration else ()
    if to is not None and to not in _names(voters):
        raise UsageError(f"{to} is not a voter: expected one of {', '.join(_names(voters))}")
    target = next((member for member in voters if member.name == to), None)
    engine.hand_over(time.monotonic(), target)


def _names(members: tuple[Member, ...]) -> tuple[str, ...]:
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
