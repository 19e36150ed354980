"""A cluster in simulated time: nodes, their network, their clients, and the checkers that watch them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sirius.codec import BlockCodec
from sirius.engine import Engine
from sirius.errors import CorruptLog, RangeUnavailable
from sirius.paxos.members import Configuration, Member
from sirius.testing.simulator.checkers import Checkers
from sirius.testing.simulator.clients import REQUEST_BYTES_MAX, Clients
from sirius.testing.simulator.events import Loop, Trace
from sirius.testing.simulator.network import Network
from sirius.testing.simulator.node import SimNode
from sirius.testing.simulator.settings import Settings, stream
from sirius.testing.simulator.truth import Violation
from sirius.types import Ballot, NodeId
from sirius.wal import Block, Op

_CODEC: Final = BlockCodec(lambda: 0)


class Cluster:
    """Everything that a run consists of, its faults aside."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.loop = Loop()
        self.trace = Trace(self.loop)
        self.note = self.trace.note
        self.checkers = Checkers(settings.paxos, REQUEST_BYTES_MAX)
        self.network = Network(
            self.loop, stream(settings.seed, "network"), settings.delay_s, self._deliver
        )
        self.nodes = {name: SimNode(name, self) for name in settings.names}
        self.clients = Clients(self)
        self.lost: set[NodeId] = set()
        """Lives of disks that are no more, or cannot be relied upon."""
        self.wishes_to_come: list[tuple[str, ...]] = []
        """Member files that are being pushed out."""
        self._labels: dict[int, str] = {}
        self._proposed: list[tuple[int, Configuration]] = []
        """Slots for which other voters were proposed, and who: they may be decided before anybody knows."""

    def start(self) -> None:
        for node in self.nodes.values():
            if node.name not in self.settings.followers:
                node.wish = self.settings.voters
            node.start()
        self.clients.start()

    def _deliver(self, _source: str, target: str, item: Any) -> None:
        if target in self.nodes:
            self.nodes[target].receive(item)

    @property
    def wish(self) -> tuple[str, ...] | None:
        """The member file as a follower has it, which is not in it."""
        return next((node.wish for node in self.nodes.values() if node.wish), None)

    # ------------------------------------------------------------------ what nodes tell

    def began(self, node: SimNode) -> None:
        """A node is up, with the id that its disk holds."""
        if node.node_id in self._labels:
            self.lost.discard(NodeId(node.node_id))
            return
        lives = sum(label.startswith(node.name) for label in self._labels.values())
        self._labels[node.node_id] = node.name + (str(lives + 1) if lives else "")
        self.note(node.name, f"is {self._labels[node.node_id]} from now on")

    def proposes(self, value: Block) -> None:
        """A node asks others to accept a value."""
        if (value.entries["op"] == Op.MEMBERSHIP).any():
            configurations = _CODEC.content(value).configurations
            self._proposed += [(value.last, configuration) for configuration in configurations]

    def label(self, ballot: Ballot) -> str:
        """Write a ballot for people to read."""
        return f"{ballot.round}.{self._labels.get(ballot.node, '?')}"

    def reign(self, node: SimNode, engine: Engine, leads: bool) -> None:
        if leads:
            ballot = engine.machine.ballot
            self.checkers.leads(node.name, node.life, ballot)
            self.note(
                node.name, f"leads ballot {self.label(ballot)} from {engine.machine.decided + 1}"
            )
        else:
            self.note(node.name, "leads no more")

    def decided(self, node: SimNode, block: Block) -> None:
        truth = self.checkers.truth
        before, changes = truth.last, len(truth.configurations)
        self.checkers.decided(node.name, node.replay, block)
        if truth.last > before:
            self.note(node.name, f"decides {block.first} to {block.last}")
        if len(truth.configurations) > changes:
            voters = " ".join(
                self._labels.get(n, "?") for n in truth.configurations[-1][1].voter_ids
            )
            learners = truth.configurations[-1][1].learners
            names = " ".join(self._labels.get(each.node, "?") for each in learners) or "nobody"
            self.note(node.name, f"voters are {voters}; {names} learns")

    def gives_up(self, node: SimNode, error: Exception) -> bool:
        """Say whether a node that cannot start has a damaged disk; one that nobody has damaged is a bug."""
        if not isinstance(error, CorruptLog | RangeUnavailable):
            return False
        if not node.disk.rotten:
            raise Violation(f"W: {node.name} finds damage where there is none: {error}")
        return True

    # ------------------------------------------------------------------ who is there

    def followers_beside(self, node: SimNode) -> list[Member]:
        """Return the other followers that are up."""
        others = (self.nodes[name] for name in self.settings.followers if name != node.name)
        return [Member(NodeId(each.node_id), each.name) for each in others if each.is_up]

    @property
    def leader(self) -> SimNode | None:
        """Whoever leads with the highest ballot."""
        leaders = [
            (node.engine.machine.ballot, node)
            for node in self.nodes.values()
            if node.engine is not None and node.is_leader
        ]
        return max(leaders, key=lambda each: each[0])[1] if leaders else None

    def durable(self, node: SimNode) -> int:
        """Return how far a node's log on disk goes."""
        return node.engine.log.durable_seq if node.engine is not None else node.durable

    @property
    def slowest(self) -> int:
        """Return how far everybody is: deletes up to there are known to all."""
        return min(map(self.durable, self.nodes.values()))

    def may_lose(self, node: SimNode) -> bool:
        """Say whether a node's disk may go: the promise covers a minority of the voters.

        Whoever took the place of a lost one counts once it is in the log that it did, and once somebody who is left
        has that log: what was decided since is on the disks of a majority of the present voters. While voters may be
        on their way out, the promise is about the voters without them. And while a change of the voters may have been
        decided, it is about those before it and about those after it.
        """
        truth = self.checkers.truth
        if not truth.configurations:
            return False
        slot, configuration = truth.configurations[-1]
        member = Member(NodeId(node.node_id), node.name)
        if member in configuration.learners:
            # It may be about to become a voter.
            configuration = configuration.promoted(member)
        gone = self.lost | {member.node}
        has_log = any(self.durable(each) >= slot for each in self._left(configuration, gone))
        rooted = all(self.is_rooted(wish, gone) for wish in self._wishes)
        spare = 0 if self._is_settled(configuration) else 1
        self._proposed = [each for each in self._proposed if each[0] > truth.last]
        possible = [configuration, *(proposed for _, proposed in self._proposed)]
        return (
            has_log
            and rooted
            and all(len(self._left(each, gone)) >= each.majority + spare for each in possible)
        )

    def _left(self, configuration: Configuration, gone: Collection[int]) -> list[SimNode]:
        """Return the voters whose disks are there."""
        voters = configuration.voter_ids
        nodes = self.nodes.values()
        return [each for each in nodes if each.node_id in voters and each.node_id not in gone]

    @property
    def _wishes(self) -> list[tuple[str, ...]]:
        now = [node.wish for node in self.nodes.values() if node.wish]
        return list(dict.fromkeys([*now, *self.wishes_to_come]))

    def _is_settled(self, configuration: Configuration) -> bool:
        """Say whether nobody who is alive is about to be taken out."""
        names = sorted(member.name for member in configuration.voters)
        return all(sorted(wish) == names for wish in self._wishes)

    @property
    def has_lost_voters(self) -> bool:
        configurations = self.checkers.truth.configurations
        voters = configurations[-1][1].voter_ids if configurations else ()
        return any(node in self.lost for node in voters)

    def is_rooted(self, wish: tuple[str, ...], gone: Collection[int]) -> bool:
        """Say whether somebody who is wished for remembers the cluster: empty disks alone would found another."""
        nodes = (self.nodes[name] for name in wish)
        return any(self.durable(node) and node.node_id not in gone for node in nodes)

    def wish_to_end_with(self) -> tuple[str, ...]:
        """Return the members that a healed cluster is to have: those of the beginning, if one of them remembers it."""
        wishes = [self.settings.voters, *self._wishes]
        return next((wish for wish in wishes if self.is_rooted(wish, self.lost)), wishes[0])

    def lose(self, node: SimNode) -> None:
        """Count a disk as lost."""
        self.lost.add(NodeId(node.node_id))
