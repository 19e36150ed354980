"""Partitions: like sizes, nothing twice, nothing forgotten; and what stands in a partition."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.wal.index import INDEX_ENTRY, IndexTable
from spark_connector.reading import partitioning
from spark_connector.reading.partitioning import Choice, share_out
from spark_connector.reading.pieces import GAP_BYTES_MAX, Live, Piece, cut, runs_of
from spark_connector.reading.pinned import Stretch, pieces_of, pin
from spark_connector.reading.scan import Scan
from spark_connector.schema import schema_of
from tests.spark.readlogs import expected, make, numbered, read

MIB = 1 << 20


def table_of(sizes: list[int], *, start: int = 64) -> IndexTable:
    """An index of blocks of these sizes, with ten records each."""
    table = np.zeros(len(sizes), INDEX_ENTRY)
    table["offset"] = start + np.cumsum([0, *sizes[:-1]])
    table["size"] = sizes
    table["first"] = np.arange(len(sizes)) * 10 + 1
    table["last"] = table["first"] + 9
    table["count"] = 10
    return table


def stretch_of(segment: int, sizes: list[int]) -> Choice:
    table = table_of(sizes)
    end, last = 64 + sum(sizes), len(sizes) * 10
    name = f"log/{segment}"
    stretch = Stretch("log", name, segment, 1, last, end, len(sizes), last, lambda: table)
    return stretch, stretch.whole()


def covered(pieces: list[Piece]) -> dict[int, list[tuple[int, int]]]:
    """The byte ranges of each segment, neighbours joined."""
    found: dict[int, list[tuple[int, int]]] = {}
    for piece in pieces:
        for run in piece.runs:
            ranges = found.setdefault(piece.segment, [])
            if ranges and ranges[-1][1] == run.start:
                ranges[-1] = (ranges[-1][0], run.end)
            else:
                ranges.append((run.start, run.end))
    return found


def test_a_small_log_becomes_as_many_partitions_as_there_are_cores() -> None:
    chosen = [stretch_of(segment, [MIB] * 3) for segment in range(1, 9)]
    shared = share_out(chosen, 2)
    assert [[piece.segment for piece in part] for part in shared] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_tiny_log_is_one_partition() -> None:
    assert len(share_out([stretch_of(1, [1000]), stretch_of(2, [1000])], 8)) == 1


def test_nothing_to_read_is_no_partition() -> None:
    assert share_out([], 4) == []


def test_one_large_segment_is_cut_between_blocks() -> None:
    shared = share_out([stretch_of(1, [MIB] * 40)], 4)
    assert [part[0].nbytes // MIB for part in shared] == [10, 10, 10, 10]
    assert [part[0].runs[0].first for part in shared] == [1, 101, 201, 301]
    assert [part[0].runs[0].last for part in shared] == [100, 200, 300, 400]


def test_a_line_near_the_end_of_a_segment_is_moved_there() -> None:
    chosen = [stretch_of(1, [MIB] * 21), stretch_of(2, [MIB] * 19)]
    assert [[piece.segment for piece in part] for part in share_out(chosen, 2)] == [[1], [2]]


def test_a_large_log_becomes_a_multiple_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "PARTITION_BYTES_MAX", 4 * MIB)
    chosen = [stretch_of(segment, [MIB] * 10) for segment in (1, 2, 3)]
    shared = share_out(chosen, 3)
    assert len(shared) == 9
    assert max(sum(piece.nbytes for piece in part) for part in shared) <= 5 * MIB


@given(
    st.lists(st.lists(st.integers(1, 5 * MIB), min_size=1, max_size=9), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_every_byte_is_shared_out_once_and_in_order(sizes: list[list[int]], parallel: int) -> None:
    chosen = [stretch_of(number, blocks) for number, blocks in enumerate(sizes, 1)]
    shared = share_out(chosen, parallel)
    assert len(shared) <= parallel
    pieces = [piece for part in shared for piece in part]
    assert [piece.segment for piece in pieces] == sorted(piece.segment for piece in pieces)
    whole = {number: [(64, 64 + sum(blocks))] for number, blocks in enumerate(sizes, 1)}
    assert covered(pieces) == whole


def test_an_ancestors_segment_cannot_be_cut() -> None:
    stretch = Stretch("log", "1/data", 1, 1, 9, 40 * MIB, 1, 9, lambda: None, ancestor=True)
    assert len(share_out([(stretch, stretch.whole())], 4)) == 1


def test_blocks_that_are_wanted_make_runs() -> None:
    far = GAP_BYTES_MAX + 1
    table = table_of([100, 100, far, 100, 50, 100])
    wanted = np.array([True, True, False, True, False, True])
    runs = [(run.first, run.last, run.blocks) for run in runs_of(table, wanted)]
    # Over the small gap one reads on, over the large one not.
    assert runs == [(1, 20, 2), (31, 60, 3)]
    assert runs_of(table, np.zeros(6, np.bool_)) == []


@given(st.lists(st.integers(1, 3000), unique=True, min_size=1).map(sorted), st.randoms())
def test_live_numbers_are_found_again(seqs: list[int], rng: random.Random) -> None:
    live = Live.of(np.array(seqs, np.int64), 1, 3000)
    asked = np.array([rng.randint(-5, 3100) for _ in range(200)] + seqs, np.int64)
    assert live.mask(asked).tolist() == [seq in set(seqs) for seq in asked.tolist()]


def test_what_is_live_takes_as_little_room_as_it_can() -> None:
    few = Live.of(np.array([5, 900_000], np.int64), 1, 1_000_000)
    many = Live.of(np.arange(1, 100_001, dtype=np.int64), 1, 100_000)
    assert len(pickle.dumps(few)) < 400
    assert len(pickle.dumps(many)) < 13_000


@pytest.mark.parametrize("every", [2, 200])
def test_a_run_that_is_cut_keeps_what_is_live(every: int) -> None:
    table = table_of([100] * 40)
    [run] = runs_of(table, np.ones(40, np.bool_))
    live = np.arange(1, 401, every, dtype=np.int64)
    object.__setattr__(run, "live", Live.of(live, 1, 400))
    parts = cut(run, table, [64 + 1000, 64 + 2500])
    assert [(part.first, part.last) for part in parts] == [(1, 100), (101, 250), (251, 400)]
    everything = np.arange(1, 401, dtype=np.int64)
    masks = [part.live.mask(everything) for part in parts if part.live]
    assert np.add.reduce([mask.astype(int) for mask in masks]).tolist() == [
        int(seq in set(live.tolist())) for seq in everything.tolist()
    ]


def test_indexes_are_not_read_where_whole_segments_are(tmp_path: Path) -> None:
    path = make(tmp_path / "log", numbered(6, 5), rotate_after=2)
    log = pin(str(path))
    pieces_of(log, Scan(schema_of(), first=11, last=30))
    assert ["table" in vars(stretch) for stretch in log.stretches] == [False] * 3
    pieces_of(log, Scan(schema_of(), first=12, last=30))
    assert ["table" in vars(stretch) for stretch in log.stretches] == [False, True, False]


def test_parts_of_a_segment_read_by_several_tasks_make_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "PARTITION_BYTES_MIN", 1)
    monkeypatch.setattr("spark_connector.reading.reader.cores", lambda: 7)
    path = make(tmp_path / "log", numbered(40, 5), rotate_after=25)
    assert read(path) == expected(path)
    assert sorted(read(path, view="state")) == sorted(_newest(path))


def _newest(path: Path) -> list[tuple[object, ...]]:
    newest = {row[3]: row for row in expected(path)}
    return [row for row in newest.values() if row[2] == "PUT"]
