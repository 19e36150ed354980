"""What the tests of the journal share: a model as plain as can be, and a small life to live through.

A fault may leave the state after any call from the last durable one on, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sirius.testing import MemoryFileSystem
from sirius.types import NO_BALLOT, Ballot
from sirius.wal import Batch, Block, Durability, FileSystem, Update, encode
from sirius.wal.journal import Journal
from sirius.wal.record import Op

UID = 0xC0FFEE
FOLDER = "log/journal"
PATH = f"{FOLDER}/journal"
B = [NO_BALLOT, *(Ballot(round, node) for round in range(1, 10) for node in (1, 2))]

Slots = dict[int, tuple[Ballot, bytes]]


class State(NamedTuple):
    promised: Ballot
    highest: Ballot
    trimmed: int
    notes: dict[bytes, bytes]
    slots: Slots


def values(first: int, last: int, tag: str, size: int = 0) -> Block:
    """One PUT a slot, whose body names the block and the slot."""
    bodies = [f"{tag}:{slot}".encode() + bytes(size) for slot in range(first, last + 1)]
    return encode(first, [Update(Op.PUT, b"k", body) for body in bodies], ts_us=7)


def slots_of(journal: Journal, first: int = 1, last: int = 10**6) -> Slots:
    """What is accepted for each slot; every block is checked as if it came from outside."""
    slots: Slots = {}
    before = first - 1
    for ballot, block in journal.accepted(first, last):
        Block.parse(block.raw)
        assert before < block.first <= block.last <= last
        before = block.last
        found = {int(record.seq): (ballot, record.body) for record in Batch.of(block).records()}
        assert list(found) == list(range(block.first, block.last + 1))
        slots |= found
    return slots


def state_of(journal: Journal) -> State:
    return State(
        journal.promised,
        journal.highest_ballot,
        journal.trimmed_to,
        dict(journal.notes),
        slots_of(journal),
    )


@dataclass
class Model:
    """What a journal should know, written down as plainly as can be."""

    promised: Ballot = NO_BALLOT
    highest: Ballot = NO_BALLOT
    trimmed: int = 0
    notes: dict[bytes, bytes] = field(default_factory=dict)
    slots: Slots = field(default_factory=dict)

    def promise(self, ballot: Ballot) -> None:
        self.promised = ballot

    def use_ballot(self, ballot: Ballot) -> None:
        self.highest = ballot

    def accept(self, ballot: Ballot, block: Block) -> None:
        self.promised = ballot
        for record in Batch.of(block).records():
            if record.seq > self.trimmed:
                self.slots[record.seq] = (ballot, record.body)

    def note(self, key: bytes, value: bytes) -> None:
        self.notes[key] = value

    def trim(self, decided: int) -> None:
        self.trimmed = max(self.trimmed, decided)
        self.slots = {slot: value for slot, value in self.slots.items() if slot > self.trimmed}

    def state(self) -> State:
        slots = dict(sorted(self.slots.items()))
        return State(self.promised, self.highest, self.trimmed, dict(self.notes), slots)


class Call(NamedTuple):
    """One call, to be made of a journal or of the model."""

    name: str
    args: tuple[Ballot | Block | bytes | int, ...] = ()

    def make(self, target: Journal | Model) -> None:
        getattr(target, self.name)(*self.args)


def states_after(calls: list[Call]) -> list[State]:
    """The state before any call, after the first, after the second, and so on."""
    model = Model()
    states = [model.state()]
    for call in calls:
        call.make(model)
        states.append(model.state())
    return states


# A small life, in groups: each call changes the state, values overlap, some are trimmed.
GROUPS = [
    [Call("promise", (B[1],)), Call("use_ballot", (B[2],))],
    [Call("accept", (B[1], values(1, 3, "a")))],
    [Call("note", (b"k", b"v")), Call("accept", (B[3], values(2, 2, "b"))), Call("trim", (1,))],
    [Call("promise", (B[4],)), Call("accept", (B[5], values(3, 5, "c"))), Call("trim", (2,))],
]
CALLS = [call for group in GROUPS for call in group]
STATES = states_after(CALLS)


def new_disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("log")
    fs.sync_dir("")
    return fs


def disk_with(journal: bytes) -> MemoryFileSystem:
    fs = new_disk()
    fs.mkdir(FOLDER)
    fs.sync_dir("log")
    fs.write_bytes(PATH, journal)
    return fs


def opened(fs: FileSystem, durability: Durability = Durability.FSYNC, uid: int = UID) -> Journal:
    return Journal.open(FOLDER, uid=uid, fs=fs, durability=durability, background=False)
