"""What must hold, checked from outside the nodes at every decision, answer and tick.

=  ==========================================================================================================
A  Agreement: one value a slot, on all nodes and in all their lives; and one leader a ballot.
P  Prefix: each node decides slot after slot, no gap, no repetition, in each of its lives.
D  Durability: what was acknowledged is in its slot; what was rejected is nowhere; nothing takes effect twice.
C  Convergence: equal positions have equal states.
R  Reads and removals: a read is not older than what was acknowledged before it began; a hole is only where an
   entry was superseded or a delete could go, so nothing comes back that was deleted.
M  Memory: what a node holds stays below its bound, and so does what waits for its handler.
L  Liveness: once everything is healed, writes resume and all nodes reach the same end (`simulation`). And nobody
   stands in the way of others who hears nobody, or whose disk hangs (`watch`).
=  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from sirius.paxos.config import PaxosConfig
from sirius.testing.simulator.truth import Fact, Replay, Truth, Violation, decode
from sirius.types import Ballot, NodeId
from sirius.wal import Block, Update


class Checkers:
    """All promises of one cluster. Every method raises `Violation`."""

    def __init__(self, config: PaxosConfig, request_bytes_max: int) -> None:
        self.truth = Truth()
        self.acknowledged = 0
        """How many updates were acknowledged."""
        self.acknowledged_to = 0
        """The highest slot of them."""
        self._decoded: dict[tuple[int, int, int], dict[int, Fact]] = {}
        self._reigns: dict[Ballot, tuple[str, int]] = {}
        self._rejected: list[tuple[str, Sequence[Update]]] = []
        self._bytes_max = held_bytes_max(config, request_bytes_max)

    # ------------------------------------------------------------------ A P C R

    def decided(self, who: str, replay: Replay, block: Block) -> None:
        """A node decided a block, or found it in its log when it started."""
        if block.first != replay.position + 1:
            raise Violation(
                f"P: {who} decided {block.first} to {block.last} behind {replay.position}"
            )
        facts = self._facts(block)
        if len(facts) < block.last - block.first + 1:
            self._check_holes(who, replay, block, facts)
        replay.apply(facts.values())
        replay.position = block.last
        self._check_state(who, replay)

    def _facts(self, block: Block) -> dict[int, Fact]:
        identity = (block.first, block.last, block.header.payload_crc)
        facts = self._decoded.get(identity)
        if facts is None:
            facts = self._decoded[identity] = decode(block)
            for slot, fact in facts.items():
                self._check_agreement(slot, fact)
        return facts

    def _check_agreement(self, slot: int, fact: Fact) -> None:
        truth = self.truth
        if slot == truth.last + 1:
            truth.extend(fact)
        elif slot > truth.last:
            raise Violation(f"A: slot {slot} is decided, and nobody has decided {truth.last + 1}")
        elif truth.facts[slot - 1] != fact:
            raise Violation(f"A: slot {slot} is {truth.facts[slot - 1]} and {fact}")

    def _check_holes(self, who: str, replay: Replay, block: Block, facts: dict[int, Fact]) -> None:
        for slot in range(block.first, block.last + 1):
            if slot in facts:
                continue
            if slot > self.truth.last:
                raise Violation(f"A: {who} has a hole at {slot}, which nobody has decided")
            by = self.truth.superseded_by(slot)
            if by is None:
                raise Violation(f"R: {who} has a hole at {slot}: {self.truth.facts[slot - 1]}")
            replay.whole_from = max(replay.whole_from, by)

    def _check_state(self, who: str, replay: Replay) -> None:
        position = replay.position
        if position >= replay.whole_from and replay.digest != self.truth.digests[position]:
            raise Violation(
                f"C: {who} has another state at {position}: {replay.digest:x}, "
                f"not {self.truth.digests[position]:x}"
            )

    # ------------------------------------------------------------------ A: leaders

    def leads(self, who: str, life: int, ballot: Ballot) -> None:
        """A node leads with a ballot."""
        before = self._reigns.setdefault(ballot, (who, life))
        if before != (who, life):
            raise Violation(f"A: ballot {ballot} leads twice: {before} and {(who, life)}")

    @property
    def reigns(self) -> int:
        return len(self._reigns)

    # ------------------------------------------------------------------ D

    def done(self, who: str, updates: Sequence[Update], last: int) -> None:
        """A node said that updates are decided, up to a slot."""
        first = last - len(updates) + 1
        if first < 1 or last > self.truth.last:
            raise Violation(f"D: {who} acknowledged {first} to {last}, which nobody has decided")
        for slot, update in enumerate(updates, first):
            fact = self.truth.facts[slot - 1]
            if (fact.op, fact.key, fact.body) != update[:3]:
                raise Violation(f"D: {who} acknowledged {update[:3]} in slot {slot}: {fact}")
        self.acknowledged += len(updates)
        self.acknowledged_to = max(self.acknowledged_to, last)

    def rejected(self, who: str, updates: Sequence[Update]) -> None:
        """A node said that updates have not, and never will have, any effect."""
        self._rejected.append((who, updates))

    def check_rejected(self) -> None:
        """See that nothing that was rejected is anywhere."""
        for who, updates in self._rejected:
            for update in updates:
                if update.body and (slot := self.truth.slot_of(update.body)) is not None:
                    raise Violation(f"D: {who} rejected {update[:3]}, and it is in slot {slot}")

    def check_kept(self, held: dict[NodeId, set[int]], lost: set[NodeId]) -> None:
        """See that every acknowledged slot is on the disks of a majority of those who decided it.

        `held` says which slots are on each disk, `lost` which disks are no more: they had their vote.
        """
        for slot in range(1, self.acknowledged_to + 1):
            configuration = self.truth.voters_at(slot)
            if configuration is None:
                raise Violation(f"D: slot {slot} is decided, and nobody votes")
            nodes = configuration.voter_ids
            holders = sum(node in lost or slot in held.get(node, ()) for node in nodes)
            if holders < configuration.majority:
                raise Violation(f"D: slot {slot} is on {holders} of {len(nodes)} disks")

    # ------------------------------------------------------------------ R: reads

    def read(self, who: str, began_behind: int, slot: int) -> None:
        """A node said that a read is up to date at a slot, which began when another was acknowledged."""
        if slot < began_behind:
            raise Violation(
                f"R: a read at {who} is said to be up to date at {slot}; {began_behind} was acknowledged before it"
            )

    # ------------------------------------------------------------------ M

    def memory(self, who: str, held_bytes: int) -> None:
        """A node holds so much."""
        if held_bytes > self._bytes_max:
            raise Violation(f"M: {who} holds {held_bytes} bytes, the bound is {self._bytes_max}")


def held_bytes_max(config: PaxosConfig, request_bytes_max: int) -> int:
    """Return what the bounds of a configuration add up to; each may be passed by the last thing taken."""
    own = config.pending_bytes_max + config.intake_bytes_max + 2 * request_bytes_max
    value = max(config.batch_bytes_max, request_bytes_max)
    return own + config.pipeline_bytes_max + value + accepted_bytes_max(config)


def accepted_bytes_max(config: PaxosConfig) -> int:
    """Return what an acceptor, or a leader that took over from several, may hold: a few pipelines' worth."""
    return 8 * (config.pipeline_bytes_max + config.batch_bytes_max)
