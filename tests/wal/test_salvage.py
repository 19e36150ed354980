"""What salvage owes: every record that it gives is an original one, and what it does not give it names as lost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from errno import EIO

import numpy as np
import pytest

from sirius.errors import CorruptFile
from sirius.testing import MemoryFileSystem
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER_BYTES, Block, assemble, encode
from sirius.wal.frames import FILE_HEADER_BYTES, MARK_BYTES, FileHeader, FileKind, Mode
from sirius.wal.index import encode_row, row_of
from sirius.wal.manifest import SegmentInfo
from sirius.wal.record import Op, Record, Update
from sirius.wal.repair.salvage import Salvage, salvage
from sirius.wal.repair.wreck import Wreck
from sirius.wal.segment import Segment, SegmentWriter
from tests.strides import BYTE_BY_BYTE

UID = 0x5EED
FOLDER = "segment"
DATA = f"{FOLDER}/data"
FIRST = 40


def dense(first: int, count: int) -> Block:
    """A block in which every number has an entry. Lengths differ, so that a wrong one shows."""
    updates = [
        Update(Op.PUT, f"key/{seq}".encode() + b"k" * (seq % 3), b"body" * (seq % 4), seq, 7)
        for seq in range(first, first + count)
    ]
    return encode(first, updates, 1000 + first)


def sparse(first: int, last: int, seqs: list[int]) -> Block:
    """A block with holes, as compaction leaves it."""
    entries = np.zeros(len(seqs), ENTRY)
    entries["op"], entries["seq"], entries["ts"] = Op.PUT, seqs, 5
    keys = [f"sparse/{seq}".encode() for seq in seqs]
    return assemble(first, last, entries, keys, [b"x" * (seq % 5) for seq in seqs])


BLOCKS = [
    dense(40, 3),
    dense(43, 1),
    sparse(44, 55, [45, 46, 50, 53]),
    Block.hole(56, 60),
    dense(61, 2),
    sparse(63, 70, [70]),
    dense(71, 1),
]


@dataclass(frozen=True)
class Scene:
    """A segment on disk and what was put into it."""

    fs: MemoryFileSystem
    info: SegmentInfo
    records: dict[int, Record]

    @property
    def size(self) -> int:
        return len(self.fs.read_bytes(DATA))

    @property
    def index(self) -> bytes:
        return self.fs.read_bytes(f"{FOLDER}/index")

    def open(self) -> Wreck:
        return Wreck(self.fs, FOLDER, self.info, UID)

    def offset(self, at: int) -> int:
        """Where a block stands."""
        row = np.frombuffer(self.index, "<u8").reshape(-1, 6)[at]
        return int(row[2])


def scene(blocks: list[Block] = BLOCKS, *, marks: bool = True) -> Scene:
    """Write blocks into a segment, with a mark behind each as a log does, or one at the end as compaction does."""
    fs = MemoryFileSystem()
    header = FileHeader(FileKind.SEGMENT, 3, UID, blocks[0].first, 99)
    writer = SegmentWriter.create(fs, FOLDER, header, Mode.FSYNC)
    for block in blocks:
        writer.append([block])
        if marks:
            writer.sync()
            writer.mark(Mode.FSYNC)
    info = writer.seal(Mode.FSYNC)
    writer.abandon()
    records = [record for block in blocks for record in Batch.of(block).records()]
    return Scene(fs, info, {record.seq: record for record in records})


LAYOUTS = pytest.mark.parametrize("marks", [True, False], ids=["log", "product"])


def check(at: Scene, *, index: bytes | None = None, upto: int | None = None) -> Salvage:
    """Salvage, and hold it to its promises."""
    saved = salvage(at.open(), upto, at.index if index is None else index)
    lost = {seq for first, last in saved.lost for seq in range(first, last + 1)}
    found: dict[int, Record] = {}
    covered: set[int] = set()
    for block in saved.blocks():
        assert block.first > max(covered, default=0)
        covered |= set(range(block.first, block.last + 1))
        found |= {record.seq: record for record in Batch.of(Block.parse(block.raw)).records()}
    assert covered | lost == set(range(saved.first, saved.last + 1))
    assert not covered & lost
    assert found == {seq: at.records[seq] for seq in at.records if seq in covered}
    return saved


def missing(at: Scene, saved: Salvage) -> list[int]:
    """The original records that are in lost ranges."""
    return [seq for seq in at.records if any(a <= seq <= b for a, b in saved.lost)]


def test_nothing_is_lost_of_a_whole_segment() -> None:
    at = scene()
    saved = check(at)
    assert saved.lost == []
    assert [block.raw for block in saved.blocks()] == [block.raw for block in BLOCKS]


@LAYOUTS
@BYTE_BY_BYTE
@pytest.mark.parametrize("mask", [0x01, pytest.param(0xFF, marks=pytest.mark.deep)])
def test_a_flipped_byte_costs_one_record_at_most_if_the_index_is_whole(
    marks: bool, mask: int, step: int
) -> None:
    at = scene(marks=marks)
    for offset in range(0, at.size, step):
        at.fs.flip(DATA, offset, mask)
        saved = check(at)
        assert len(missing(at, saved)) <= 1, offset
        at.fs.flip(DATA, offset, mask)


@LAYOUTS
@BYTE_BY_BYTE
def test_a_flipped_byte_costs_one_block_at_most_without_an_index(marks: bool, step: int) -> None:
    at = scene(marks=marks)
    for offset in range(0, at.size, step):
        at.fs.flip(DATA, offset, 0x10)
        gone = missing(at, check(at, index=b""))
        assert any({*gone} <= {*range(block.first, block.last + 1)} for block in BLOCKS), offset
        at.fs.flip(DATA, offset, 0x10)


@LAYOUTS
def test_zeroed_sectors_at_every_place(marks: bool) -> None:
    at = scene(marks=marks)
    content = at.fs.read_bytes(DATA)
    for offset in range(0, at.size, 8):
        for length in (64, 512):
            at.fs.zero(DATA, offset, min(length, at.size - offset))
            check(at)
            check(at, index=b"")
            at.fs.write_bytes(DATA, content)


@LAYOUTS
@BYTE_BY_BYTE
def test_a_file_cut_at_every_byte_keeps_all_whole_blocks_in_front(marks: bool, step: int) -> None:
    at = scene(marks=marks)
    content = at.fs.read_bytes(DATA)
    ends = [at.offset(n) + len(block) for n, block in enumerate(BLOCKS)]
    for size in range(0, at.size, step):
        at.fs.cut(DATA, size)
        saved, _ = check(at), check(at, index=b"")
        whole = [block.last for block, end in zip(BLOCKS, ends, strict=True) if end <= size]
        assert saved.lost == [] or saved.lost[0][0] > max(whole, default=0)
        assert saved.last == at.info.last
        at.fs.write_bytes(DATA, content)


def test_of_a_block_that_is_cut_the_first_records_are_saved() -> None:
    at = scene([dense(FIRST, 20)], marks=False)
    at.fs.cut(DATA, at.size - MARK_BYTES - 8)
    assert check(at).lost == [(59, 59)]


def test_blocks_that_changed_places_are_all_saved() -> None:
    blocks = [dense(FIRST + 12 * n, 12) for n in range(5)]
    assert len({len(block) for block in blocks}) == 1
    for marks in (True, False):
        at = scene(blocks, marks=marks)
        at.fs.swap(DATA, at.offset(1), at.offset(3), len(blocks[0]))
        for index in (at.index, b""):
            assert check(at, index=index).lost == []


def test_a_block_written_over_another_counts_once() -> None:
    blocks = [dense(FIRST + 12 * n, 12) for n in range(4)]
    at = scene(blocks)
    at.fs.overwrite(DATA, at.offset(1), blocks[2].raw)
    assert check(at).lost == [(52, 63)]


def test_random_damage_in_several_places() -> None:
    rng = random.Random(20)
    for marks in (True, False):
        at = scene(marks=marks)
        content = at.fs.read_bytes(DATA)
        for _ in range(150):
            for _ in range(rng.randint(1, 4)):
                offset = rng.randrange(at.size)
                length = min(rng.choice((1, 8, 48, 200)), at.size - offset)
                at.fs.overwrite(DATA, offset, rng.choice((bytes(length), rng.randbytes(length))))
            if rng.random() < 0.2:
                at.fs.cut(DATA, rng.randrange(at.size))
            check(at)
            check(at, index=b"")
            at.fs.write_bytes(DATA, content)


def test_an_index_that_nobody_vouches_for_misleads_nobody() -> None:
    at, rng = scene(), random.Random(4)
    at.fs.flip(DATA, at.offset(2), 0xFF)
    for _ in range(50):
        check(at, index=rng.randbytes(rng.choice((48, 96, 100, 336))))
    other = scene([dense(FIRST, 40)])
    check(at, index=other.index)


def test_a_damaged_index_is_believed_up_to_the_damage() -> None:
    at = scene()
    at.fs.flip(DATA, at.offset(1) + 5)
    index = bytearray(at.index)
    index[-20] ^= 1
    assert check(at, index=bytes(index)).lost == []
    index[0] ^= 1
    assert check(at, index=bytes(index)).lost == [(43, 43)]


def test_a_block_inside_a_body_is_no_block_of_the_log() -> None:
    inner = encode(FIRST + 1, [Update(Op.PUT, b"forged", b"never written")], 1)
    for pad in range(8):
        body = b"-" * pad + inner.raw + b"tail" * pad
        outer = encode(FIRST, [Update(Op.PUT, b"k", body)] * 3, 1)
        at = scene([outer, dense(FIRST + 3, 1)], marks=False)
        at.fs.flip(DATA, at.offset(0) + 9)
        assert check(at, index=b"").lost == [(40, 42)]
        assert check(at).lost == []


def test_a_block_inside_a_body_is_none_even_if_no_mark_is_left_or_the_index_says_so() -> None:
    inner = encode(FIRST + 1, [Update(Op.PUT, b"forged", b"never written")], 1)
    outer = encode(FIRST, [Update(Op.PUT, b"kkk", b"12345" + inner.raw)], 1)
    at = scene([outer, Block.hole(FIRST + 1, FIRST + 9)], marks=False)
    inside = at.fs.read_bytes(DATA).index(b"SBLK", at.offset(0) + 4)
    assert inside % 8 == 0
    forged = encode_row(row_of(inner.header, inside))
    at.fs.zero(DATA, at.offset(0), 8)
    assert check(at, index=forged).lost == [(FIRST, FIRST)]
    at.fs.cut(DATA, at.offset(0) + len(outer))
    for index in (b"", forged):
        assert check(at, index=index).lost == [(FIRST, FIRST + 9)]


def test_an_entry_in_the_place_of_another_proves_nothing() -> None:
    # Equal keys, bodies and times: an entry is good wherever it stands.
    at = scene([encode(FIRST, [Update(Op.PUT, b"k", b"b")] * 5, 1)])
    rows, last = at.offset(0) + HEADER_BYTES, at.offset(0) + HEADER_BYTES + 4 * ENTRY_BYTES
    at.fs.overwrite(DATA, rows, at.fs.read_bytes(DATA)[last : last + ENTRY_BYTES])
    at.fs.zero(DATA, rows + ENTRY_BYTES, 4 * ENTRY_BYTES)
    assert check(at).lost == [(FIRST, FIRST + 4)]


def test_entries_that_changed_places_prove_nothing_about_holes() -> None:
    # Equal keys, bodies and times: an entry is good wherever it stands.
    entries = np.zeros(3, ENTRY)
    entries["op"], entries["seq"] = Op.PUT, [42, 46, 50]
    block = assemble(FIRST, 60, entries, [b"k"] * 3, [b"b"] * 3)
    at = scene([block])
    rows = at.offset(0) + HEADER_BYTES
    at.fs.swap(DATA, rows, rows + 2 * ENTRY_BYTES, ENTRY_BYTES)
    assert check(at).lost == [(FIRST, 60)]


def test_neighbours_prove_the_holes_between_them() -> None:
    at = scene([sparse(40, 70, [45, 50, 55, 60, 65])])
    body = at.offset(0) + HEADER_BYTES + 2 * ENTRY_BYTES
    at.fs.flip(DATA, body + 20)
    assert check(at).lost == [(51, 59)]


def test_damage_to_a_file_header_costs_nothing() -> None:
    at = scene()
    at.fs.zero(DATA, 0, FILE_HEADER_BYTES)
    assert at.open().header_damaged
    assert at.open().identified
    assert check(at).lost == []
    at.fs.zero(DATA, 0, FILE_HEADER_BYTES + MARK_BYTES)
    assert not at.open().identified
    assert check(at).lost == []


def test_a_file_that_belongs_to_another_segment_is_not_believed() -> None:
    at = scene()
    info = SegmentInfo(SegmentId(4), Seq(FIRST), at.info.last)
    wreck = Wreck(at.fs, FOLDER, info, UID)
    assert wreck.header_damaged
    assert not wreck.identified


def test_the_end_of_an_active_segment_is_the_highest_number_known_of() -> None:
    at = scene()
    wreck = Wreck(at.fs, FOLDER, SegmentInfo(SegmentId(3), Seq(FIRST)), UID)
    at.fs.zero(DATA, at.offset(5), at.offset(6) + len(BLOCKS[6]) - at.offset(5))
    saved = salvage(wreck)
    assert (saved.last, saved.lost) == (71, [(63, 71)])
    at.fs.zero(DATA, at.offset(5), at.size - at.offset(5))
    saved = salvage(wreck)
    assert (saved.last, saved.lost) == (62, [])


def test_what_lies_behind_the_wanted_end_is_cut_off() -> None:
    at = scene()
    assert [saved.last for saved in check(at, upto=51).blocks()][-1] == 51
    assert check(at, upto=80).lost == [(72, 80)]
    at.fs.flip(DATA, at.offset(0) + HEADER_BYTES)
    saved = check(at, upto=41)
    assert (saved.lost, [block.last for block in saved.blocks()]) == ([(40, 40)], [41])


def test_holes_stand_for_what_is_lost_only_if_asked_for() -> None:
    at = scene()
    for block in (0, 4, 6):
        at.fs.zero(DATA, at.offset(block), len(BLOCKS[block]))
    saved = check(at)
    assert saved.lost == [(40, 42), (61, 62), (71, 71)]
    blocks = list(saved.blocks(holes=True))
    assert [block.first for block in blocks] == [40, *(block.last + 1 for block in blocks[:-1])]
    assert (blocks[-1].last, blocks[0].count) == (71, 0)


def test_pages_that_the_disk_does_not_give_are_lost_and_the_rest_is_saved() -> None:
    at = scene([dense(FIRST, 400)])
    at.fs.fail("read", DATA, EIO, times=1)
    assert check(at).lost == []
    wreck = at.open()
    # Of all later reads the first two fail: one of many pages, and the first page of it.
    at.fs.fail("read", DATA, EIO, times=2)
    raw = wreck.read(0, at.size)
    assert raw == bytes(4096) + at.fs.read_bytes(DATA)[4096:]


def test_a_disk_that_changes_its_mind_is_found_out() -> None:
    at = scene()
    at.fs.flip(DATA, at.offset(0) + HEADER_BYTES)
    saved = check(at)
    at.fs.zero(DATA, at.offset(0) + HEADER_BYTES, 3 * ENTRY_BYTES)
    with pytest.raises(CorruptFile, match="other bytes than before"):
        list(saved.blocks())


def test_salvage_takes_a_plain_segment_too() -> None:
    at = scene()
    saved = salvage(Segment(at.fs, FOLDER, at.info))
    assert saved.lost == []
