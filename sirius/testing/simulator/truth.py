"""What was decided, as seen from outside all nodes.

The first node that decides a slot says what is in it; everybody else, in all lives, must say the same. Nodes hand out
decisions in order and without gaps, so this is a list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from sirius.codec import from_json
from sirius.paxos.members import Configuration
from sirius.wal import Block, Op

_PUT: Final = int(Op.PUT)
_DELETE: Final = int(Op.DELETE)
"""As plain numbers: every node compares every entry with them."""


class Violation(Exception):
    """A promise was broken. Begins with the letter of the promise."""


class Fact(NamedTuple):
    """One decided entry. `mark` stands for key and body in digests; 0 for a key that is not there."""

    crc: int
    op: int
    key: bytes
    body: bytes
    session: int
    serial: int
    mark: int


def decode(block: Block) -> dict[int, Fact]:
    """Return the entries of a block by slot. It knows the format, and none of the code that consensus runs."""
    raw, found = block.raw, {}
    key_at, body_at = block.keys_at, block.bodies_at
    for crc, key_len, body_len, op, _, _, slot, _, session, serial in block.entries.tolist():
        key, body = raw[key_at : key_at + key_len], raw[body_at : body_at + body_len]
        mark = crc32(body, crc32(key)) | 1 << 32 if op == Op.PUT else 0
        found[slot] = Fact(crc, op, key, body, session, serial, mark)
        key_at, body_at = key_at + key_len, body_at + body_len
    return found


class Replay:
    """A state that entries are applied to, and its digest: what a request handler would hold."""

    def __init__(self) -> None:
        self.marks: dict[bytes, int] = {}
        self.digest = 0
        self.position = 0
        self.whole_from = 0
        """A hole was superseded by this slot: up to there the state may lack what the truth has."""

    def apply(self, facts: Iterable[Fact]) -> None:
        marks, digest = self.marks, self.digest
        for _, op, key, _, _, _, mark in facts:
            if op == _PUT:
                digest ^= marks.get(key, 0) ^ mark
                marks[key] = mark
            elif op == _DELETE:
                digest ^= marks.pop(key, 0)
        self.digest = digest


class Truth:
    """All decided entries, the state after each, and who votes."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.digests: list[int] = [0]
        self.configurations: list[tuple[int, Configuration]] = []
        """Slots of membership entries, and what they say."""
        self.deletes_dropped_upto = 0
        """Compaction was allowed to drop deletes up to here."""
        self._replay = Replay()
        self._slots: dict[tuple[bool, bytes], list[int]] = {}
        self._serials: dict[int, int] = {}
        self._bodies: dict[bytes, int] = {}

    @property
    def last(self) -> int:
        return len(self.facts)

    def extend(self, fact: Fact) -> None:
        """Take the next decided entry; D: it must not have been decided before."""
        self._check_once(fact)
        self.facts.append(fact)
        self._replay.apply((fact,))
        self.digests.append(self._replay.digest)
        self._slots.setdefault((fact.op == Op.MEMBERSHIP, fact.key), []).append(self.last)
        if fact.op == Op.MEMBERSHIP:
            self.configurations.append((self.last, from_json(fact.body)))

    def _check_once(self, fact: Fact) -> None:
        slot = self.last + 1
        if fact.session:
            expected = self._serials.get(fact.session, 0) + 1
            if fact.serial != expected:
                raise Violation(
                    f"D: slot {slot} holds serial {fact.serial} of session {fact.session}, "
                    f"not {expected}"
                )
            self._serials[fact.session] = fact.serial
        if fact.op == Op.PUT:
            before = self._bodies.setdefault(fact.body, slot)
            if before != slot:
                raise Violation(f"D: an update took effect twice, in slots {before} and {slot}")

    def slot_of(self, body: bytes) -> int | None:
        """Return where an update is, by its unique body."""
        return self._bodies.get(body)

    def voters_at(self, slot: int) -> Configuration | None:
        """Return the configuration that decides a slot."""
        at = bisect_right(self.configurations, slot - 1, key=lambda each: each[0])
        founding = self.configurations[0] if self.configurations else None
        found = self.configurations[at - 1] if at else founding
        return found[1] if found else None

    def superseded_by(self, slot: int) -> int | None:
        """Return the slot that made the entry of another needless: 0 if it always was, None if it is not."""
        fact = self.facts[slot - 1]
        if fact.op == Op.NOOP:
            return 0
        slots = self._slots[fact.op == Op.MEMBERSHIP, fact.key]
        at = bisect_right(slots, slot)
        if at < len(slots):
            return slots[at]
        dropped = fact.op == Op.DELETE and slot <= self.deletes_dropped_upto
        return 0 if dropped else None
