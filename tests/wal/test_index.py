"""The index against its twin: a list of rows and a loop over it."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.wal import Block, Op, Update, encode
from sirius.wal.index import INDEX_ENTRY_BYTES, Index, IndexRow, encode_row, row_of


class Twin:
    """Rows in a list."""

    def __init__(self) -> None:
        self.rows: list[IndexRow] = []
        self.offset = 64

    def grow(self, covered: int) -> IndexRow:
        first = self.rows[-1][1] + 1 if self.rows else 1
        row = (first, first + covered - 1, self.offset, 64 * covered, covered, -first, first)
        self.rows.append(row)
        self.offset += row[3]
        return row

    def position(self, seq: int) -> int:
        return next((at for at, row in enumerate(self.rows) if row[1] >= seq), len(self.rows))


def check(index: Index, twin: Twin, seq: int) -> None:
    position = index.position(seq)
    assert (position, len(index)) == (twin.position(seq), len(twin.rows))
    if position < len(index):
        assert index.row(position) == twin.rows[position]


STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60), st.booleans()), max_size=30)


@settings(deadline=None)
@given(st.integers(0, 5), STEPS)
def test_lookups_between_appends_are_those_of_a_list(
    known: int, steps: list[tuple[int, int, bool]]
) -> None:
    twin = Twin()
    index = Index.from_bytes(b"".join(encode_row(twin.grow(3)) for _ in range(known)))
    for covered, seq, settle in steps:
        index.append(twin.grow(covered))
        check(index, twin, seq)
        if settle:
            assert index.table.tolist() == twin.rows
    assert index.table.tobytes() == b"".join(map(encode_row, twin.rows))


def test_rows_move_into_the_array_without_a_difference() -> None:
    rng = random.Random(7)
    index, twin = Index(), Twin()
    for count in range(3000):
        index.append(twin.grow(rng.randrange(1, 4)))
        if count % 50 == 0 or 1020 <= count <= 1030:
            last = twin.rows[-1][1]
            for seq in (1, last, last + 1, rng.randrange(1, last + 1)):
                check(index, twin, seq)
    assert index.table.tolist() == twin.rows


def test_an_empty_index_finds_nothing() -> None:
    index = Index()
    assert (len(index), index.position(1), len(index.table)) == (0, 0, 0)


def test_the_highest_sequence_numbers_are_found() -> None:
    top = 2**63 - 1
    for index in (Index(), Index.from_bytes(encode_row((1, top - 9, 64, 64, 0, 0, 0)))):
        at = len(index)
        index.append((top - 8, top, 128, 64, 0, 0, 0))
        assert [index.position(seq) for seq in (top - 8, top, top + 1)] == [at, at, at + 1]
        assert len(index.table) == at + 1
        assert [index.position(seq) for seq in (top - 8, top, top + 1)] == [at, at, at + 1]


@pytest.mark.parametrize("cut", range(1, INDEX_ENTRY_BYTES))
def test_a_partial_row_at_the_end_of_the_file_is_left_out(cut: int) -> None:
    twin = Twin()
    raw = b"".join(encode_row(twin.grow(2)) for _ in range(3))
    assert Index.from_bytes(raw[:-cut]).table.tolist() == twin.rows[:2]


def test_the_bytes_of_a_row_never_change() -> None:
    block = encode(7, [Update(Op.PUT, b"k", b"v")] * 2, 5)
    assert encode_row(row_of(block.header, 112)) == bytes.fromhex(
        "0700000000000000 0800000000000000"  # covers 7 to 8
        "7000000000000000"  # stands at byte 112
        "a8000000 02000000"  # 168 bytes, two entries
        "0500000000000000 0500000000000000"  # oldest and newest time
    )


def test_a_row_says_what_the_block_says() -> None:
    hole = Block.hole(5, 9)
    assert row_of(hole.header, 8) == (5, 9, 8, len(hole), 0, 0, 0)


def test_readers_see_only_whole_rows_while_one_thread_appends() -> None:
    index, twin = Index(), Twin()
    rows = [twin.grow(1) for _ in range(6000)]
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        rng = random.Random(1)
        while not done.is_set():
            if length := len(index):
                seq = rng.randrange(1, length + 1)
                found = index.row(index.position(seq))
                if found != rows[seq - 1]:
                    wrong.append((seq, found))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for row in rows:
        index.append(row)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert np.array_equal(index.table["last"], np.arange(1, 6001, dtype=np.uint64))
