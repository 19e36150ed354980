"""Blocks: their bytes, and what `Block.parse` makes of bytes that are no block."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import CorruptLog, InvalidRecord
from sirius.wal import Batch, Block, Limits, Op, Update, encode
from sirius.wal.block import ENTRY_BYTES, HEADER_BYTES, SEQ_MAX
from sirius.wal.record import key_bytes

GOLDEN = bytes.fromhex(
    # header
    "53424c4b"  # magic "SBLK"
    "24a43e9c"  # checksum of the 56 bytes that follow
    "0100 0000"  # version 1, no flags
    "02000000"  # two entries
    "0700000000000000"  # covers 7
    "0800000000000000"  # to 8
    "03000000 03000000"  # three bytes of keys, three of bodies
    "ad36aa45 00000000"  # checksum of all behind the header; reserved
    "0807060504030201"  # oldest time
    "0807060504030201"  # newest time
    # entry 7
    "66e36c2c"  # checksum of the 44 bytes that follow, the key and the body
    "02000000 03000000"  # two bytes of key, three of body
    "01 00 0000"  # PUT, no flags, reserved
    "0700000000000000"  # sequence number
    "0807060504030201"  # time
    "8877665544332211"  # session
    "0900000000000000"  # serial
    # entry 8
    "9bdabea1"  # checksum
    "01000000 00000000"  # one byte of key, no body
    "02 00 0000"  # DELETE
    "0800000000000000"  # sequence number
    "0807060504030201"  # time
    "0000000000000000 0000000000000000"  # no session
    "c3a9 6b"  # keys: "é", "k"
    "78797a"  # bodies: "xyz", ""
    "0000"  # zeroes up to a multiple of 8
)
GOLDEN_UPDATES = [
    Update(Op.PUT, "é".encode(), b"xyz", 0x1122334455667788, 9),
    Update(Op.DELETE, b"k"),
]
GOLDEN_TIME = 0x0102030405060708

KEYS = st.text(min_size=1, max_size=20)
NUMBERS = st.integers(0, 2**64 - 1)
KEY_BYTES = KEYS.map(str.encode)
PUTS = st.builds(Update, st.just(Op.PUT), KEY_BYTES, st.binary(), NUMBERS, NUMBERS)
DELETES = st.builds(Update, st.just(Op.DELETE), KEY_BYTES, st.just(b""), NUMBERS, NUMBERS)
CONTROLS = st.builds(
    Update,
    st.sampled_from([Op.NOOP, Op.MEMBERSHIP]),
    st.sampled_from([b"", b"m"]),
    st.binary(),
    NUMBERS,
    NUMBERS,
)
UPDATES = st.lists(PUTS | DELETES | CONTROLS, min_size=1, max_size=12)
FIRSTS = st.integers(1, 2**40) | st.integers(SEQ_MAX - 40, SEQ_MAX - 12)
TIMES = st.integers(-(2**63), 2**63 - 1)


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C by its definition, to tie the library's to the standard."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def forged(block: bytes, at: int, field: str, value: int) -> bytes:
    """Change one field of a block and make the header's and the payload's checksums right again."""
    raw = bytearray(block)
    struct.pack_into(field, raw, at, value)
    struct.pack_into("<I", raw, 40, crc32c(bytes(raw[HEADER_BYTES:])))
    struct.pack_into("<I", raw, 4, crc32c(bytes(raw[8:HEADER_BYTES])))
    return bytes(raw)


def refusal(raw: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(CorruptLog) as caught:
        Block.parse(raw, limits or Limits())
    return str(caught.value)


# --- bytes ----------------------------------------------------------------------------------------


def test_the_bytes_of_a_block_never_change() -> None:
    assert encode(7, GOLDEN_UPDATES, GOLDEN_TIME).raw == GOLDEN


def test_the_checksums_are_crc_32c_of_what_the_format_says() -> None:
    assert bitwise_crc32c(b"123456789") == 0xE3069283
    entry, key_and_body = GOLDEN[64 + 4 : 64 + 48], "éxyz".encode()
    parts = {4: GOLDEN[8:64], 40: GOLDEN[64:], 64: entry + key_and_body}
    for at, covered in parts.items():
        assert GOLDEN[at : at + 4] == bitwise_crc32c(covered).to_bytes(4, "little")


@settings(deadline=None)
@given(FIRSTS, UPDATES, TIMES)
def test_what_is_encoded_is_parsed_again(first: int, updates: list[Update], ts_us: int) -> None:
    block = Block.parse(encode(first, updates, ts_us).raw)
    assert (block.first, block.last) == (first, first + len(updates) - 1)
    assert (block.count, len(block) % 8) == (len(updates), 0)
    records = list(Batch.of(block).records())
    assert [Update(r.op, r.key.encode(), *r[4:]) for r in records] == updates
    assert [r.seq for r in records] == list(range(first, first + len(updates)))
    assert {r.ts_us for r in records} == {ts_us}


@settings(deadline=None, max_examples=50)
@given(FIRSTS, UPDATES)
def test_a_cut_holds_the_records_of_its_range_and_no_other(
    first: int, updates: list[Update]
) -> None:
    block = encode(first, updates, 5)
    records = list(Batch.of(block).records())
    for low in range(block.first, block.last + 1):
        for high in range(low, block.last + 1):
            cut = Block.parse(block.cut(low, high).raw)
            assert (cut.first, cut.last) == (low, high)
            assert list(Batch.of(cut).records()) == [r for r in records if low <= r.seq <= high]


def test_a_cut_through_holes_may_hold_nothing() -> None:
    block = Batch.of(encode(10, [Update(Op.PUT, b"k")] * 9, 5))
    sparse = block.where(block.seq % 4 == 0).block()
    for low in range(10, 19):
        for high in range(low, 19):
            cut = Block.parse(sparse.cut(low, high).raw)
            wanted = [seq for seq in (12, 16) if low <= seq <= high]
            assert (cut.first, cut.last, cut.entries["seq"].tolist()) == (low, high, wanted)


def test_a_cut_keeps_the_checksums_that_the_entries_were_born_with() -> None:
    block = encode(1, GOLDEN_UPDATES * 3, 5)
    assert block.cut(2, 4).entries["crc"].tolist() == block.entries["crc"][1:4].tolist()


@pytest.mark.parametrize("bounds", [(1, 1), (5, 900), (SEQ_MAX, SEQ_MAX), (1, SEQ_MAX)])
def test_a_hole_covers_its_range_with_nothing(bounds: tuple[int, int]) -> None:
    block = Block.parse(Block.hole(*bounds).raw)
    assert ((block.first, block.last), block.count, len(block)) == (bounds, 0, HEADER_BYTES)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_byte_of_a_block_is_guarded(mask: int) -> None:
    for at in range(len(GOLDEN)):
        raw = bytearray(GOLDEN)
        raw[at] ^= mask
        refusal(bytes(raw))


def test_a_block_that_is_too_short_or_too_long_is_refused() -> None:
    for size in range(len(GOLDEN)):
        refusal(GOLDEN[:size])
    refusal(GOLDEN + bytes(8))


ENTRY_7, ENTRY_8 = HEADER_BYTES, HEADER_BYTES + ENTRY_BYTES
FORGERIES = [
    (8, "<H", 2, "format 2"),
    (8, "<H", 0, "format 0"),
    (10, "<H", 1, "flags 1"),
    (44, "<I", 1, "not known"),
    (12, "<I", 3, "3 entries for 7 to 8"),
    (12, "<I", 1, "the block says"),
    (16, "<Q", 0, "covers 0 to 8"),
    (16, "<Q", 8, "2 entries for 8 to 8"),
    (16, "<Q", 9, "covers 9 to 8"),
    (16, "<Q", 6, None),
    (24, "<Q", 9, None),
    (24, "<Q", 2**63, "covers 7 to"),
    (24, "<Q", 2**64 - 1, "covers 7 to"),
    (32, "<I", 2, "keys do not add up"),
    (36, "<I", 4, "bodies do not add up"),
    (48, "<q", 0, "times"),
    (56, "<q", 2**63 - 1, "times"),
    (ENTRY_7 + 4, "<I", 1, "keys do not add up"),
    (ENTRY_7 + 8, "<I", 4, "bodies do not add up"),
    (ENTRY_7 + 12, "<B", 0, "operation"),
    (ENTRY_7 + 12, "<B", 6, "operation"),
    (ENTRY_8 + 13, "<B", 1, "flags"),
    (ENTRY_8 + 14, "<H", 1, "flags"),
    (ENTRY_7 + 16, "<Q", 6, "do not increase"),
    (ENTRY_7 + 16, "<Q", 8, "do not increase"),
    (ENTRY_8 + 16, "<Q", 7, "do not increase"),
    (ENTRY_8 + 16, "<Q", 9, "do not increase"),
    (ENTRY_8 + 24, "<q", 1, "times"),
    (ENTRY_7 + 40, "<Q", 10, None),
]


@pytest.mark.parametrize(("at", "field", "value", "reason"), FORGERIES)
def test_right_checksums_do_not_save_a_block_that_makes_no_sense(
    at: int, field: str, value: int, reason: str | None
) -> None:
    raw = forged(GOLDEN, at, field, value)
    if reason is None:
        assert Block.parse(raw).count == 2
    else:
        assert reason in refusal(raw)


def test_sequence_numbers_that_fall_within_the_range_are_refused() -> None:
    raw = encode(1, [Update(Op.PUT, b"k")] * 5, 1).raw
    for row, seq in ((2, 2), (2, 5), (3, 1)):
        at = HEADER_BYTES + row * ENTRY_BYTES + 16
        assert "do not increase" in refusal(forged(raw, at, "<Q", seq))


def test_a_key_that_ends_inside_a_character_is_refused() -> None:
    raw = encode(1, [Update(Op.PUT, "aé".encode()), Update(Op.PUT, b"b")], 1).raw
    shifted = forged(raw, HEADER_BYTES + 4, "<I", 2)
    assert "UTF-8" in refusal(forged(shifted, HEADER_BYTES + ENTRY_BYTES + 4, "<I", 2))


def test_a_key_that_is_no_utf_8_at_all_is_refused() -> None:
    at = GOLDEN.index("é".encode())
    for octets in (b"\xff\xff", b"\xc0\x80", b"\x80a"):
        assert "UTF-8" in refusal(forged(GOLDEN, at, "<H", int.from_bytes(octets, "little")))


LENGTH_FIELDS = [12, 32, 36, ENTRY_7 + 4, ENTRY_7 + 8, ENTRY_8 + 4]


@pytest.mark.parametrize("at", LENGTH_FIELDS)
@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**32 - 1])
def test_lengths_that_lie_allocate_nothing(at: int, length: int) -> None:
    raw = forged(forged(GOLDEN, 24, "<Q", 2**40), at, "<I", length)
    for limits in (Limits(), Limits(block_bytes_max=2**62)):
        tracemalloc.start()
        try:
            refusal(raw, limits)
            assert tracemalloc.get_traced_memory()[1] < 50_000
        finally:
            tracemalloc.stop()


def test_the_limit_on_blocks_counts_every_byte_both_ways() -> None:
    update = Update(Op.PUT, b"k", b"x" * 10)
    size = len(encode(1, [update], 1))
    exactly = Limits(block_bytes_max=size)
    assert len(Block.parse(encode(1, [update], 1, exactly).raw, exactly)) == size
    assert f"the limit is {size - 1}" in refusal(encode(1, [update], 1).raw, Limits(1, 1, size - 1))


# --- what is not taken ----------------------------------------------------------------------------

TIGHT = Limits(key_bytes_max=4, body_bytes_max=8)
GOOD = Update(Op.PUT, b"k", b"v")
BAD_UPDATES: list[tuple[dict[str, Any], str]] = [
    ({"key": b""}, "the key is empty"),
    ({"op": Op.DELETE, "key": b"", "body": b""}, "the key is empty"),
    ({"key": b"12345"}, "the key has 5 bytes, the limit is 4"),
    ({"body": b"123456789"}, "the body has 9 bytes, the limit is 8"),
    ({"op": Op.DELETE}, "a DELETE has no body"),
    ({"key": "k"}, "bytes, not str, bytes"),
    ({"body": None}, "bytes, not bytes, NoneType"),
    ({"op": 0}, "no operation 0"),
    ({"op": 6}, "no operation 6"),
    ({"op": "PUT"}, "no operation 'PUT'"),
    ({"session": -1}, "session -1"),
    ({"session": 2**64}, "64 bits"),
    ({"serial": 2**64}, "64 bits"),
    ({"serial": 0.5}, "serial 0.5"),
    ({"key": b"\xed\xa0\x80"}, "not UTF-8"),
    ({"key": b"\xc3"}, "not UTF-8"),
]


@pytest.mark.parametrize(("changes", "problem"), BAD_UPDATES)
def test_a_bad_update_is_refused_with_its_place_and_the_limit(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRecord) as caught:
        encode(1, [GOOD, GOOD, GOOD._replace(**changes)], 1, TIGHT)
    assert "entry 2 of 3: " in str(caught.value)
    assert problem in str(caught.value)


def test_two_keys_do_not_share_a_character() -> None:
    halves = [GOOD._replace(key=b"a\xc3"), GOOD._replace(key=b"\xa9b")]
    with pytest.raises(InvalidRecord, match="entry 0 of 2: a key is not UTF-8"):
        encode(1, halves, 1)


def test_control_entries_need_no_key_and_everything_may_be_as_long_as_the_limit() -> None:
    edge = [Update(Op.NOOP, b""), Update(Op.PUT, b"1234", b"12345678"), Update(Op.DELETE, b"k")]
    assert Block.parse(encode(1, edge, 1, TIGHT).raw, TIGHT).count == 3


@pytest.mark.parametrize("code", [0xD800, 0xD83D, 0xDFFF])
def test_a_lone_surrogate_is_no_key(code: int) -> None:
    with pytest.raises(InvalidRecord, match=rf"key 'a\\u{code:x}' .* UTF-8"):
        key_bytes("a" + chr(code))


@pytest.mark.parametrize("key", [b"k", 7, None])
def test_a_key_is_text(key: Any) -> None:
    with pytest.raises(InvalidRecord, match=type(key).__name__):
        key_bytes(key)


@pytest.mark.parametrize("first", [-1, 0, SEQ_MAX, SEQ_MAX + 1, 2**64])
def test_sequence_numbers_stay_within_63_bits(first: int) -> None:
    with pytest.raises(InvalidRecord, match=str(first)):
        encode(first, [GOOD, GOOD], 1)


@pytest.mark.parametrize("ts_us", [-(2**63) - 1, 2**63])
def test_times_stay_within_64_bits(ts_us: int) -> None:
    with pytest.raises(InvalidRecord, match="time"):
        encode(1, [GOOD], ts_us)


def test_a_block_has_something_in_it() -> None:
    with pytest.raises(InvalidRecord, match="at least one"):
        encode(1, [], 1)


@pytest.mark.parametrize("missing", range(1, 9))
def test_a_block_over_the_limit_is_refused_before_it_is_written(missing: int) -> None:
    limits = Limits(block_bytes_max=len(encode(1, [GOOD], 1)) - missing)
    with pytest.raises(InvalidRecord, match=f"the limit is {limits.block_bytes_max}"):
        encode(1, [GOOD], 1, limits)
