"""Recovery of a damaged active segment in a copy, whose marks bear the id of the log that was copied."""

from __future__ import annotations

import pytest

from sirius.errors import CorruptFile, RangeUnavailable
from sirius.testing import MemoryFileSystem
from sirius.wal import Log, LogConfig, State
from sirius.wal.store import Store

CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4)
COPY = "copy"
LAST = 11


def settled_copy() -> MemoryFileSystem:
    """A copy of a log of three segments that has become a log of its own."""
    fs = MemoryFileSystem()
    with Log.open("log", CONFIG, fs=fs) as log:
        for number in range(LAST):
            log.put(f"key/{number}", b"body")
            log.flush()
    fs.copy_tree("log", COPY)
    Log.open(COPY, CONFIG, fs=fs).close()
    assert Store(fs, COPY).load().uid != Store(fs, "log").load().uid
    return fs


def lose_last_block(fs: MemoryFileSystem) -> str:
    """Damage the last block, so that only the marks behind it know of its number; return the file."""
    path = f"{COPY}/segments/{Store(fs, COPY).load().active.name}/data"
    fs.zero(path, fs.read_bytes(path).rindex(b"SBLK"), 100)
    return path


@pytest.mark.parametrize(
    "damaged", [range(20, 21), range(64), range(64 + 48)], ids=["a byte", "header", "and mark"]
)
def test_no_number_is_given_twice_though_the_head_is_gone(damaged: range) -> None:
    fs = settled_copy()
    path = lose_last_block(fs)
    for offset in damaged:
        fs.flip(path, offset, 0xA5)
    with pytest.raises(CorruptFile):
        Log.open(COPY, CONFIG, fs=fs)
    with Log.open(COPY, CONFIG, fs=fs, on_corrupt="quarantine") as log:
        assert log.next_seq == LAST + 1
        apart = log.manifest.segments[-2]
        assert (apart.state, apart.first, apart.last) == (State.QUARANTINED, 9, LAST)
        with pytest.raises(RangeUnavailable):
            list(log.records(9, LAST))


def test_nor_if_the_head_is_whole() -> None:
    fs = settled_copy()
    lose_last_block(fs)
    with Log.open(COPY, CONFIG, fs=fs, on_corrupt="quarantine") as log:
        assert log.next_seq == LAST + 1


def test_a_head_that_says_another_place_is_not_believed() -> None:
    fs = settled_copy()
    path = lose_last_block(fs)
    # The second segment's file header and first mark, which are whole.
    fs.overwrite(path, 0, fs.read_bytes(f"{COPY}/segments/00000002/data")[: 64 + 48])
    with Log.open(COPY, CONFIG, fs=fs, on_corrupt="quarantine") as log:
        assert log.next_seq == LAST + 1
