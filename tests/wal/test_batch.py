"""Batches against their brute-force twin: a list of records and the range that it covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sirius.errors import CorruptLog
from sirius.types import Seq
from sirius.wal import Batch, Block, Op, Record
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, Header, assemble

ODD_KEYS = [
    "\r\n",
    "\r",
    "\n",
    "a\rb",
    "a\r\nb\n",
    "\0",
    "é",
    "日本",
    "𝄞",
    "\x85\u2028",
    "a",
    "k" * 70,
]


class Twin(NamedTuple):
    """What a batch should be."""

    first: int
    last: int
    records: list[Record]

    def where(self, keep: Sequence[bool]) -> Twin:
        return self._replace(records=[r for r, k in zip(self.records, keep, strict=True) if k])

    def between(self, first: int, last: int) -> Twin:
        kept = [record for record in self.records if first <= record.seq <= last]
        return Twin(max(first, self.first), min(last, self.last), kept)

    def block(self) -> Block:
        entries = np.zeros(len(self.records), ENTRY)
        for row, record in zip(entries, self.records, strict=True):
            row["op"], row["seq"], row["ts"] = record.op, record.seq, record.ts_us
            row["session"], row["serial"] = record.session, record.serial
        keys = [record.key.encode() for record in self.records]
        return assemble(self.first, self.last, entries, keys, [r.body for r in self.records])


def check(batch: Batch, twin: Twin) -> None:
    """Compare everything that a batch can be asked."""
    records = twin.records
    assert (batch.first, batch.last, len(batch)) == (twin.first, twin.last, len(records))
    assert batch.holes == twin.last - twin.first + 1 - len(records)
    assert list(batch.records()) == records
    assert batch.keys() == [record.key for record in records]
    assert batch.key_blobs() == [record.key.encode() for record in records]
    assert batch.bodies() == [record.body for record in records]
    assert batch.key_column.blob() == "".join(record.key for record in records).encode()
    assert batch.body_column.blob() == b"".join(record.body for record in records)
    assert batch.seq.tolist() == [record.seq for record in records]
    assert batch.op.tolist() == [record.op for record in records]
    assert batch.block().raw == twin.block().raw


RECORDS = st.builds(
    Record,
    seq=st.just(Seq(0)),
    ts_us=st.integers(-(2**63), 2**63 - 1),
    op=st.sampled_from(list(Op)),
    key=st.sampled_from(ODD_KEYS) | st.text(max_size=8),
    body=st.binary(max_size=12),
    session=st.integers(0, 2**64 - 1),
    serial=st.integers(0, 2**64 - 1),
)
SLOTS = st.lists(st.none() | RECORDS, min_size=1, max_size=6)
"""A block's worth: each sequence number has a record or is a hole."""


def twin_of(first: int, slots: Sequence[Record | None]) -> Twin:
    records = [r._replace(seq=Seq(first + at)) for at, r in enumerate(slots) if r is not None]
    return Twin(first, first + len(slots) - 1, records)


@st.composite
def chains(draw: st.DrawFn) -> list[Twin]:
    """Blocks that follow each other, some without a record, some with all."""
    twins: list[Twin] = []
    first = draw(st.integers(1, 2**40))
    for slots in draw(st.lists(SLOTS, min_size=1, max_size=6)):
        twins.append(twin_of(first, slots))
        first = twins[-1].last + 1
    return twins


def laid_out(twins: Sequence[Twin], gap: int) -> tuple[Batch, Twin]:
    """Put blocks into one buffer, as a chunk of a file holds them, with a mark's room between."""
    buf, spans = b"", []
    for block in (twin.block() for twin in twins):
        spans.append((len(buf), block.header))
        buf += block.raw + b"\xee" * gap
    whole = Twin(twins[0].first, twins[-1].last, [r for twin in twins for r in twin.records])
    return Batch.of_spans(buf, spans), whole


@settings(deadline=None, max_examples=60)
@given(chains())
def test_a_batch_of_one_block_is_the_block(twins: list[Twin]) -> None:
    for twin in twins:
        check(Batch.of(twin.block()), twin)


@settings(deadline=None, max_examples=60)
@given(chains(), st.sampled_from([0, 48]))
@example([twin_of(1, [None]), twin_of(2, [None, None])], 48)
def test_a_batch_of_many_blocks_is_all_of_them(twins: list[Twin], gap: int) -> None:
    check(*laid_out(twins, gap))


@settings(deadline=None, max_examples=100)
@given(chains(), st.sampled_from([0, 48]), st.data())
def test_narrowed_again_and_again_it_stays_true(
    twins: list[Twin], gap: int, data: st.DataObject
) -> None:
    batch, twin = laid_out(twins, gap) if gap else (Batch.of(twins[0].block()), twins[0])
    for _ in range(data.draw(st.integers(1, 4))):
        batch, twin = narrowed(batch, twin, data)
        check(batch, twin)


def narrowed(batch: Batch, twin: Twin, data: st.DataObject) -> tuple[Batch, Twin]:
    how = data.draw(st.sampled_from(["where", "between", "updates", "block"]))
    if how == "where":
        keep = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
        return batch.where(np.array(keep, np.bool_)), twin.where(keep)
    if how == "between":
        first = data.draw(st.integers(max(1, twin.first - 2), twin.last))
        last = data.draw(st.integers(max(first, twin.first), twin.last + 2))
        return batch.between(first, last), twin.between(first, last)
    if how == "updates":
        return batch.updates(), twin.where([r.op in (Op.PUT, Op.DELETE) for r in twin.records])
    return Batch.of(Block.parse(batch.block().raw)), twin


def test_every_range_of_many_tiny_blocks() -> None:
    twins = [twin_of(at, [Record(Seq(0), at, Op.PUT, f"k{at}", b"v" * at)]) for at in range(1, 9)]
    batch, whole = laid_out(twins, 48)
    for first in range(1, 9):
        for last in range(first, 9):
            check(batch.between(first, last), whole.between(first, last))


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_come_out_as_they_went_in(key: str) -> None:
    neighbours = [key, "x", key, key, "\n"]
    twin = twin_of(1, [Record(Seq(0), 0, Op.PUT, each, b"") for each in neighbours])
    assert Batch.of(twin.block()).keys() == neighbours
    assert laid_out([twin, twin_of(6, [None])], 0)[0].keys() == neighbours


WIDTHS = {
    "one width": [("abc", b"1234"), ("def", b"5\x00\x00\x00"), ("ghi", b"\x00\x00\x00\x00")],
    "a zero in a key": [("a\0c", b"12"), ("\0\0\0", b"34")],
    "a zero at a key's end": [("ab\0", b"12"), ("abc", b"34")],
    "beyond ASCII": [("é", b"12"), ("ab", b"34")],
    "one width on average": [("a", b"12"), ("abc", b""), ("ab", b"1")],
    "no bodies": [("a", b""), ("b", b"")],
    "a lone record": [("a", b"1")],
}


@pytest.mark.parametrize("pairs", WIDTHS.values(), ids=WIDTHS)
def test_columns_of_one_width_and_those_that_look_like_it(pairs: list[tuple[str, bytes]]) -> None:
    twin = twin_of(1, [Record(Seq(0), 0, Op.PUT, key, body) for key, body in pairs])
    check(Batch.of(twin.block()), twin)


def test_a_hole_is_an_empty_batch() -> None:
    check(Batch.hole(5, 900), Twin(5, 900, []))


# --- lengths that do not add up -------------------------------------------------------------------


def lying(key_len: int, body_len: int) -> tuple[bytes, Header]:
    """Return a block whose first entry tells other lengths, as only a bug could have sealed it."""
    twin = twin_of(
        1, [Record(Seq(0), 0, Op.PUT, "key", b"body"), Record(Seq(0), 0, Op.PUT, "k", b"")]
    )
    raw = bytearray(twin.block().raw)
    raw[HEADER_BYTES + 4 : HEADER_BYTES + 8] = key_len.to_bytes(4, "little")
    raw[HEADER_BYTES + 8 : HEADER_BYTES + 12] = body_len.to_bytes(4, "little")
    return bytes(raw), Header._make(HEADER.unpack_from(raw))


LIES = [(2, 4), (4, 4), (3, 3), (3, 5), (2**32 - 1, 4), (3, 2**31), (0, 0)]


@pytest.mark.parametrize(("key_len", "body_len"), LIES)
def test_a_batch_of_one_block_notices_lengths_that_do_not_add_up(
    key_len: int, body_len: int
) -> None:
    raw, header = lying(key_len, body_len)
    with pytest.raises(CorruptLog, match="add up"):
        list(Batch.of_span(raw, 0, header).records())
    with pytest.raises(CorruptLog, match="add up"):
        Batch.of_span(raw, 0, header).between(2, 2)


@pytest.mark.parametrize(("key_len", "body_len"), LIES)
def test_a_batch_of_many_blocks_notices_lengths_that_do_not_add_up(
    key_len: int, body_len: int
) -> None:
    raw, header = lying(key_len, body_len)
    good = twin_of(3, [None]).block()
    with pytest.raises(CorruptLog, match="add up"):
        Batch.of_spans(raw + good.raw, [(0, header), (len(raw), good.header)])


@pytest.mark.parametrize("width", [1, 2, 4, 2**31])
def test_lengths_of_one_width_that_do_not_add_up_are_noticed(width: int) -> None:
    twin = twin_of(
        1, [Record(Seq(0), 0, Op.PUT, "key", b"sun"), Record(Seq(0), 0, Op.PUT, "k", b"")]
    )
    raw = bytearray(twin.block().raw)
    for at in (HEADER_BYTES, HEADER_BYTES + ENTRY_BYTES):
        raw[at + 4 : at + 12] = 2 * width.to_bytes(4, "little")
    header = Header._make(HEADER.unpack_from(raw))
    header = header._replace(keys_len=6, bodies_len=6)
    batch = Batch.of_span(bytes(raw), 0, header)
    for read in (batch.keys, batch.key_blobs, batch.bodies):
        with pytest.raises(CorruptLog, match="add up"):
            read()


def test_lengths_that_make_up_for_each_other_between_blocks_are_noticed() -> None:
    raw, header = lying(4, 4)
    other, _ = lying(2, 4)
    spans = [(0, header), (len(raw), header._replace(first=3, last=4))]
    with pytest.raises(CorruptLog, match="add up"):
        Batch.of_spans(raw + other, spans)


def test_the_entries_of_a_batch_cannot_be_written_to() -> None:
    batch = Batch.of(twin_of(1, [Record(Seq(0), 0, Op.PUT, "k", b"")]).block())
    with pytest.raises(ValueError, match="read-only"):
        batch.entries["seq"] = 2
    assert batch.entries.nbytes == ENTRY_BYTES
