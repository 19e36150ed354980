"""A node as a whole: the loop, its transport, the member file, compaction, and what can be said about it."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sirius.catchup.sources import Source
from sirius.config import MembersFile, SiriusConfig
from sirius.driver.applier import ApplySettings
from sirius.driver.calls import Patience
from sirius.driver.loop import Driver, DriverSettings
from sirius.driver.replaying import Replay
from sirius.driver.report import Watch, names_of, report
from sirius.driver.upkeep import Upkeep
from sirius.engine import Engine, Settings
from sirius.errors import NodeError, UsageError
from sirius.handler import RequestHandler
from sirius.ops.recorder import Recorder
from sirius.ops.status import PeerStatus, Status
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
_CALL_S: Final = 30.0
"""How long the loop may take to answer."""
_KEEP_S: Final = 10.0
"""How often links that nobody uses are let go."""
_GREET_S: Final = 1.0
"""How often the nodes of `follow` are asked who they are: they may have lost their disk since."""


class Node:
    """Everything of one node. Made in the caller's thread; closed by `close`."""

    def __init__(self, handler: RequestHandler, config: SiriusConfig) -> None:
        self.config = config
        self.name = config.name or _EMBEDDED
        self.watch = Watch()
        self._polled_at = time.monotonic()
        self._greeted_at = self._kept_at = 0.0
        self._network = self._join_network()
        self._sources: dict[str, Member] = {}
        """The nodes of `follow` that have answered."""
        self.recorder = Recorder() if config.metrics else None
        self.driver = Driver(
            handler, _settings(config, self.name), self._network, self._look, self.recorder
        )
        self.upkeep = Upkeep(
            lambda: self.driver.disk.log,
            self._policy,
            self._compacted,
            config.compaction.interval_s if config.compaction.enabled else None,
        )
        try:
            self._members = self._read_members()
            self.driver.start(self.wished)
        except BaseException:
            # Whoever tries again needs the folder.
            self.driver.close(_CALL_S)
            raise
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
        return NodeBackend(self, driver.publish, driver.give, lambda: driver.disk.log, driver.pool)

    def _read_members(self) -> MembersFile | None:
        """Open the member file. Where there is a cluster already a bad one is no reason not to start: who votes stands
        in the log, and a node that is away would help nobody."""
        path, engine = self.config.members_file, self.driver.engine
        if path is None or engine is None:
            return None
        configuration = engine.machine.configuration
        voters = names_of(configuration.voters) if configuration else None
        file = MembersFile(path, check=self.config.check_members, otherwise=voters)
        if file.problem is not None:
            _log.warning("the member file is bad, the voters stay as they are: %s", file.problem)
        return file

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
        self.watch.look(engine, self.driver.applier, now)
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
            if (met := self.driver.acquaintances.lives.get(name)) is not None:
                self._sources[name] = met
        engine.follow(Source(member, distance=-1.0) for member in self._sources.values())
        if now - self._greeted_at >= _GREET_S:
            self._greeted_at = now
            for name in self.config.follow:
                to = Member(NodeId(0), name)
                self.driver.send(to, engine.machine.envelope(to, Hello(fresh=False)))

    # ------------------------------------------------------------------ compaction

    def _policy(self) -> CompactionPolicy:
        try:
            followers_past = self.driver.call(_followers_past).result(_CALL_S)
        except NodeError:
            # Without an engine nobody knows who needs which deletes; what is superseded can go all the same.
            followers_past = Seq(0)
        return self.config.compaction_policy(time.time_ns() // 1000, followers_past)

    def _compacted(self) -> None:
        with suppress(NodeError):
            self.driver.call(Engine.compacted).result(_CALL_S)

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
        self.driver.call(lambda engine: _hand_over(engine, to)).result(_CALL_S)

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

    @property
    def is_ready(self) -> bool:
        """Whether this node has caught up since it started."""
        return self.watch.ready_at is not None

    def staleness(self) -> float:
        """How long ago this node knew that it had everything; infinite if it never did since it started."""
        return self.watch.staleness(time.monotonic())

    @property
    def members_problem(self) -> str | None:
        """What is wrong with the member file, if something is."""
        return self._members.problem if self._members is not None else None

    def status(self) -> Status:
        """Look at everything, from any thread: numbers may be a moment apart."""
        return report(self)

    def peers(self) -> tuple[PeerStatus, ...]:
        """How the links to others are."""
        if self._network is None:
            return ()
        round_trips = self.driver.acquaintances.round_trips if self.is_leader else {}
        return tuple(
            replace(peer, round_trip_s=round_trips.get(peer.name)) for peer in self._network.peers()
        )


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
        follow=tuple(config.follow),
    )


def _followers_past(engine: Engine) -> Seq:
    """How far every follower is that this node knows of."""
    lowest = engine.catchup.lowest_position
    return engine.log.durable_seq if lowest is None else min(lowest, engine.log.durable_seq)


def _hand_over(engine: Engine, to: str | None) -> None:
    configuration = engine.machine.configuration
    voters = configuration.voters if configuration else ()
    if to is not None and to not in names_of(voters):
        raise UsageError(f"{to} is not a voter: expected one of {', '.join(names_of(voters))}")
    target = next((member for member in voters if member.name == to), None)
    engine.hand_over(time.monotonic(), target)
