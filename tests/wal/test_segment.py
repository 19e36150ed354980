"""One segment on its own: what a power loss leaves of it once it is sealed, and looking up single entries."""

from __future__ import annotations

import numpy as np
import pytest

from sirius.errors import CorruptFile
from sirius.testing import MemoryFileSystem
from sirius.wal import Batch, Block, Op, SegmentInfo, Update, encode
from sirius.wal.block import ENTRY_BYTES, HEADER_BYTES
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.segment import Segment, SegmentWriter, load_index

FOLDER = "seg"
COUNT = 40


def updates() -> list[Update]:
    return [Update(Op.PUT, b"k" * (at % 7 + 1), b"v" * (at % 11)) for at in range(COUNT)]


def sparse(block: Block, gone: set[int]) -> Block:
    """Leave entries out of a block, which then has holes."""
    batch = Batch.of(block)
    return batch.where(~np.isin(batch.seq.astype(np.int64), list(gone))).block()


def sealed(block: Block, *, durable: bool = True) -> tuple[MemoryFileSystem, SegmentInfo]:
    """Write a segment of one block."""
    fs = MemoryFileSystem()
    header = FileHeader(FileKind.SEGMENT, 1, 7, 1, 0)
    writer = SegmentWriter.create(fs, FOLDER, header, Mode.OS, durable=durable)
    writer.append([block])
    info = writer.seal(Mode.OS)
    writer.abandon()
    return fs, info


# --- power loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_power_loss_leaves_a_sealed_segment_its_data_and_its_index(durable: bool) -> None:
    fs, info = sealed(encode(1, updates(), 5), durable=durable)
    # The folder's own name is for the manifest's writer to sync.
    fs.sync_dir(".")
    for state in fs.crash_states():
        index = load_index(state, FOLDER, info.index_crc)
        assert index is not None
        assert Segment(state, FOLDER, info).record(index, COUNT) is not None


def test_a_segment_under_construction_is_not_synced() -> None:
    fs = MemoryFileSystem()
    header = FileHeader(FileKind.SEGMENT, 1, 7, 1, 0)
    SegmentWriter.create(fs, FOLDER, header, Mode.OS, durable=False).abandon()
    assert not [name for name, _ in fs.operations if name.startswith("sync")]


# --- looking up -----------------------------------------------------------------------------------

GONE = {
    "no holes": set[int](),
    "the first": {1, 2},
    "the last": {COUNT},
    "every other": set(range(2, COUNT, 2)),
    "all but one": set(range(1, COUNT + 1)) - {17},
    "all but the first": set(range(2, COUNT + 1)),
    "all but the last": set(range(1, COUNT)),
    "a long run": set(range(5, 35)),
}


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_every_entry_and_every_hole_is_found(gone: set[int]) -> None:
    fs, info = sealed(sparse(encode(1, updates(), 5), gone))
    segment, index = Segment(fs, FOLDER, info), load_index(fs, FOLDER, None)
    assert index is not None
    for seq, update in enumerate(updates(), 1):
        record = segment.record(index, seq)
        if seq in gone:
            assert record is None
        else:
            assert record is not None
            assert (record.seq, record.key.encode(), record.body) == (seq, update.key, update.body)


@pytest.mark.parametrize("victim", range(COUNT))
@pytest.mark.parametrize("lie", [0, 2**31, 2**32 - 1])
def test_lengths_that_lead_out_of_the_block_are_corruption(victim: int, lie: int) -> None:
    fs, info = sealed(encode(1, updates(), 5))
    segment, index = Segment(fs, FOLDER, info), load_index(fs, FOLDER, None)
    assert index is not None
    at = index.row(0)[2] + HEADER_BYTES + victim * ENTRY_BYTES
    fs.overwrite(f"{FOLDER}/data", at + 4, 2 * lie.to_bytes(4, "little"))
    with pytest.raises(CorruptFile):
        segment.record(index, victim + 1)
    for seq, update in enumerate(updates(), 1):
        try:
            record = segment.record(index, seq)
        except CorruptFile:
            continue
        assert record is not None
        assert (record.key.encode(), record.body) == (update.key, update.body)


def test_a_block_that_the_file_does_not_hold_is_corruption() -> None:
    fs, info = sealed(encode(1, updates(), 5))
    segment, index = Segment(fs, FOLDER, info), load_index(fs, FOLDER, None)
    assert index is not None
    _, _, at, size, *_ = index.row(0)
    for left in range(at + size - 16, at, -8):
        fs.cut(f"{FOLDER}/data", left)
        with pytest.raises(CorruptFile):
            segment.record(index, COUNT)


def test_another_block_than_the_index_says_is_corruption() -> None:
    fs, info = sealed(encode(1, updates(), 5))
    segment, index = Segment(fs, FOLDER, info), load_index(fs, FOLDER, None)
    assert index is not None
    fs.overwrite(f"{FOLDER}/data", index.row(0)[2], encode(2, updates(), 5).raw)
    with pytest.raises(CorruptFile, match="begins at sequence 2, not 1"):
        segment.record(index, 3)
