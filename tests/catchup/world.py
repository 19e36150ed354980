"""Nodes with fake disks, and a network that loses, repeats and reorders. Not a test.

A node does with the effects what `sirius.catchup.effects` asks a driver to do. `World.trace` notes everything, for
transcripts.
"""

from __future__ import annotations

import ast
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from sirius.catchup import Catchup, CatchupConfig, Edition, Effects, Source, Standing, Start
from sirius.catchup.effects import (
    AbandonResync,
    BeginResync,
    DropSegment,
    FetchSegment,
    FinishResync,
    InstallSegment,
    ListSegments,
    Read,
    ReadRange,
    Stage,
)
from sirius.catchup.messages import Message, PullFile
from sirius.paxos.members import Member
from sirius.types import NodeId, Seq
from tests.catchup.logs import FakeLog, Piece, Update, piece

SMALL = CatchupConfig(
    window_slots_min=2,
    window_slots_max=16,
    window_bytes_min=40,
    window_bytes_max=400,
    segment_slots=0,
    segments_max=2,
    cache_slots_max=4,
    push_slots_max=8,
    push_bytes_max=200,
)


def member(node: int) -> Member:
    return Member(NodeId(node), f"n{node}")


class Node:
    """A machine, its disk and its driver."""

    def __init__(self, world: World, node: int, region: str, voter: bool) -> None:
        self.world = world
        self.me = member(node)
        self.region = region
        self.voter = voter
        self.log = FakeLog()
        self.staged: FakeLog | None = None
        self.file = b""
        self.fetching: FetchSegment | None = None
        self.reads: list[Read] = []
        self.sources: Sequence[Source] = ()
        self.breaks_at: int | None = None
        """After how many bytes the next stream that brings a file breaks off, if it does."""
        self.refuse_files = False
        self.fail_resync = False
        self.boot()

    def boot(self, start: Start | None = None) -> None:
        """Start, or start again: the log is there, and nothing else."""
        world = self.world
        self.staged, self.file, self.fetching, self.reads = None, b"", None, []
        rng = random.Random(world.rng.getrandbits(32))
        start = start or Start(Seq(self.log.tip), self.log.edition)
        self.machine = Catchup(self.me, world.config, rng, world.now, start, self.region)
        self.machine.set_voter(self.voter)
        self.machine.set_sources(self.sources)

    def crash(self) -> None:
        machine = self.machine
        self.boot(Start(Seq(self.log.tip), self.log.edition, machine.basis, machine.whole))

    def follow(self, *sources: Source) -> None:
        self.sources = sources
        self.run(self.machine.set_sources(sources))

    # ------------------------------------------------------------------ effects

    def run(self, effects: Effects) -> None:
        self.log.raise_floor(effects.floor)
        if effects.floor:
            self.world.note(self, f"floor {effects.floor}")
        if effects.learned:
            self.append(cast(list[Piece], effects.learned), "learned")
        for step in (*effects.segments, *effects.resync):
            self.HANDLERS[type(step)](self, step)
        self.reads += effects.read
        for read in effects.read:
            self.world.note(self, f"reads {_plain(read)}")
        for to, message in effects.send:
            self.world.post(self.me, to, message)
        if self.machine.position != self.log.tip:
            raise AssertionError(f"{self.me} is at {self.machine.position}, not {self.log.tip}")

    def append(self, values: Sequence[Piece], how: str) -> None:
        self.log.append(values)
        self.world.note(self, f"{how} {' '.join(map(str, values))}")
        self.run(self.machine.advanced(values))

    def _fetch(self, step: FetchSegment) -> None:
        assert self.fetching is None, "one at a time"
        self.fetching = step

    def _install(self, step: InstallSegment) -> None:
        offer = step.offer
        is_good = zlib.crc32(self.file) == offer.checksum and not self.refuse_files
        self.world.note(self, f"{'installs' if is_good else 'refuses'} {offer.first}..{offer.last}")
        if not is_good:
            self.run(self.machine.refused(step.transfer))
            return
        updates = [Update(*each) for each in ast.literal_eval(self.file.decode())]
        self.file = b""
        log = self.staged if step.staged else self.log
        assert log is not None
        log.append([piece(offer.first, offer.last, updates)])
        self.run(self.machine.installed(step.transfer))

    def _drop(self, step: DropSegment) -> None:
        self.file, self.fetching = b"", None
        self.world.note(self, f"drops segment {step.offer.id}")

    def _begin(self, step: BeginResync) -> None:
        self.staged = FakeLog()
        self.world.note(
            self, f"begins a resync from {step.source.name} with the floor {step.floor}"
        )

    def _stage(self, step: Stage) -> None:
        assert self.staged is not None
        self.staged.append(cast(Sequence[Piece], step.values))
        self.world.note(self, f"stages {' '.join(map(str, step.values))}")

    def _finish(self, step: FinishResync) -> None:
        assert self.staged is not None
        assert self.staged.tip == step.last >= self.log.tip
        if self.fail_resync:
            self.world.note(self, "cannot finish the resync")
            self.run(self.machine.resync_failed("no room"))
            return
        gone = sorted(set(self.log.state()) - set(self.staged.state()))
        era = self.log.edition.era + 1000
        self.log, self.staged = self.staged, None
        self.log.edition = Edition(era, step.floor)
        self.world.note(self, f"is resynced to {step.last}, floor {step.floor}, without {gone}")
        self.run(self.machine.resynced(self.log.edition))

    def _abandon(self, step: AbandonResync) -> None:
        self.staged = None
        self.world.note(self, f"abandons the resync: {step.reason}")

    HANDLERS: ClassVar[dict[type, Callable[[Node, Any], None]]] = {
        FetchSegment: _fetch,
        InstallSegment: _install,
        DropSegment: _drop,
        BeginResync: _begin,
        Stage: _stage,
        FinishResync: _finish,
        AbandonResync: _abandon,
    }

    # ------------------------------------------------------------------ the disk

    def disk(self, read: Read) -> None:
        """Do a read."""
        self.reads.remove(read)
        match read:
            case ReadRange(number, first, last, bytes_max):
                values = self.log.read(first, last, bytes_max)
                if values is None:
                    self.run(self.machine.unreadable(number, "corrupt"))
                else:
                    self.run(self.machine.found(number, values, self.log.edition))
            case ListSegments(number, first, count):
                self.run(
                    self.machine.listed(number, self.log.offers(first, count), self.log.edition)
                )

    def take(self) -> None:
        """Have the stream opened that is to bring a segment, and take what comes of it."""
        step, self.fetching = self.fetching, None
        assert step is not None
        offer, source = step.offer, self.world.nodes[step.source.node]
        offset, missing = offer.offset + len(self.file), offer.bytes - len(self.file)
        question = PullFile(offer.id, offset, missing, step.position)
        self.world.trace.append(f"{self.me.name} → {source.me.name} {_plain(question)}")
        if self.world.is_cut(self, source):
            self.run(self.machine.interrupted(step.transfer, progressed=False))
            return
        source.run(source.machine.step(self.me, question))
        if offer.id not in source.log.files:
            self.world.note(source, f"withholds segment {offer.id}")
            self.run(self.machine.withheld(step.transfer))
            return
        self._came(step, source.log.files[offer.id][1][offset : offset + missing])

    def _came(self, step: FetchSegment, data: bytes) -> None:
        came, self.breaks_at = data[: self.breaks_at], None
        self.file += came
        end = ", then the stream breaks off" if len(came) < len(data) else ""
        self.world.note(self, f"gets {len(came)} bytes of segment {step.offer.id}{end}")
        if self.refuse_files and self.world.rng.random() < 0.5:
            self.world.note(self, f"refuses segment {step.offer.id}")
            self.run(self.machine.refused(step.transfer))
        elif len(came) < len(data):
            self.run(self.machine.interrupted(step.transfer, progressed=bool(came)))
        else:
            self.run(self.machine.fetched(step.transfer))

    def compact(self) -> None:
        era = self.log.edition.era
        self.log.compact(self.world.rng, self.machine.lowest_position)
        if self.log.edition.era != era:
            self.log.files.clear()
            self.run(self.machine.compacted(self.log.edition))


class World:
    """All nodes, the network between them, the time, and the truth."""

    def __init__(self, seed: int = 0, config: CatchupConfig = SMALL) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.now = 100.0
        self.nodes: dict[int, Node] = {}
        self.wire: list[tuple[Member, Member, Message]] = []
        self.cut: set[tuple[int, int]] = set()
        self.truth: list[Update] = []
        self.trace: list[str] = []

    def add(self, node: int, region: str = "", *, voter: bool = False) -> Node:
        self.nodes[node] = Node(self, node, region, voter)
        return self.nodes[node]

    def source(self, node: int, distance: float = 0.0) -> Source:
        other = self.nodes[node]
        return Source(other.me, other.region, distance, other.voter)

    def note(self, node: Node, text: str) -> None:
        self.trace.append(f"{node.me.name} {text}")

    def post(self, sender: Member, to: Member, message: Message) -> None:
        self.trace.append(f"{sender.name} → {to.name} {_plain(message)}")
        if (sender.node, to.node) not in self.cut:
            self.wire.append((sender, to, message))

    def is_cut(self, one: Node, other: Node) -> bool:
        """Say whether no stream comes through between two nodes: it needs both ways."""
        ends = (one.me.node, other.me.node)
        return ends in self.cut or ends[::-1] in self.cut

    def write(self, node: int, *texts: str) -> None:
        """Have a primary decide updates: "+k" or "-k"."""
        first = len(self.truth) + 1
        updates = [Update(first + at, text[1:], text[0] == "-") for at, text in enumerate(texts)]
        self.truth += updates
        self.nodes[node].append([piece(first, first + len(updates) - 1, updates)], "decides")

    def deliver(self, at: int = 0) -> None:
        sender, to, message = self.wire.pop(at)
        if to.node in self.nodes:
            target = self.nodes[to.node]
            target.run(target.machine.step(sender, message))

    def settle(self, steps: int = 2000) -> None:
        """Deliver everything, do all reads and bring all files, in order, until there is nothing left to do."""
        while self.wire or any(node.reads or node.fetching for node in self.nodes.values()):
            steps -= 1
            assert steps > 0, "this never ends"
            if self.wire:
                self.deliver()
            for node in self.nodes.values():
                for read in list(node.reads):
                    node.disk(read)
                if node.fetching:
                    node.take()

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for node in self.nodes.values():
            node.run(node.machine.tick(self.now))

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.tick(step)
            self.settle()


def _plain(item: tuple[Any, ...]) -> str:
    """A short text for a message or a read; numbers of requests are left out, they are random."""
    fields = getattr(item, "_fields", ())
    parts = [
        f"{name}={_field(value)}"
        for name, value in zip(fields, item, strict=True)
        if name not in ("request", "read")
    ]
    return f"{type(item).__name__}({', '.join(parts)})"


def _field(value: Any) -> str:
    match value:
        case Standing(tip, whole, (era, floor), path):
            return (
                f"tip {tip} whole {whole} era {era} floor {floor} path {'>'.join(map(str, path))}"
            )
        case tuple() if hasattr(value, "_fields"):
            return _plain(value)
        case tuple():
            return f"({', '.join(_field(each) for each in value)})"
    return str(value)
