"""Verification of blocks whose checksums are right and whose columns do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from sirius.wal import Block, Log, LogConfig, Op, OsFileSystem, Update, encode
from sirius.wal.block import ENTRY, HEADER_BYTES, checksums, seal
from sirius.wal.store import Store
from sirius.wal.verify.verify import Finding, Severity, verify

CONFIG = LogConfig(background=False, reserve_bytes=0)


def findings(path: Path, *, deep: bool = False) -> list[Finding]:
    return verify(Store(OsFileSystem(), str(path)), deep=deep).findings


def forged(edit: Callable[[np.ndarray], None], key: bytes = b"key", body: bytes = b"body") -> Block:
    """Make a block of two entries that passes its checksums and is wrong."""
    entries = np.zeros(2, ENTRY)
    entries["op"], entries["seq"], entries["ts"] = Op.PUT, (1, 2), 7
    entries["key_len"], entries["body_len"] = len(key), len(body)
    edit(entries)
    keys, bodies = [key] * 2, [body] * 2
    entries["crc"] = np.fromiter(checksums(entries, keys, bodies), np.uint32, 2)
    return seal(1, 2, entries, keys, bodies)


def resealed(block: Block, edit: Callable[[bytearray], None]) -> Block:
    """Change the bytes of a block and put its checksums right again."""
    raw = bytearray(block.raw)
    edit(raw)
    raw[40:44] = crc32c(bytes(raw[HEADER_BYTES:])).to_bytes(4, "little")
    raw[4:8] = crc32c(bytes(raw[8:HEADER_BYTES])).to_bytes(4, "little")
    return Block.trusted(bytes(raw))


def assign(name: str, *values: int) -> Callable[[np.ndarray], None]:
    def edit(entries: np.ndarray) -> None:
        entries[name] = values

    return edit


def nothing(_: np.ndarray) -> None:
    pass


def set_byte(offset: int, value: int) -> Callable[[bytearray], None]:
    def edit(raw: bytearray) -> None:
        raw[offset] = value

    return edit


WRONG = "has an operation, a key or a body that cannot be"
FORGED = {
    "order": (forged(assign("seq", 2, 1)), "sequence numbers do not increase within 1 to 2"),
    "twice": (forged(assign("seq", 2, 2)), "sequence numbers do not increase within 1 to 2"),
    "outside": (forged(assign("seq", 0, 1)), "sequence numbers do not increase within 1 to 2"),
    "operation": (forged(assign("op", 1, 9)), f"entry 2 {WRONG}"),
    "no operation": (forged(assign("op", 0, 1)), f"entry 1 {WRONG}"),
    "flags": (forged(assign("flags", 0, 1)), f"entry 2 {WRONG}"),
    "delete": (forged(assign("op", 1, 2)), f"entry 2 {WRONG}"),
    "no key": (forged(nothing, key=b""), f"entry 1 {WRONG}"),
    "utf-8": (forged(nothing, key=b"\xff"), "a key is not UTF-8: invalid start byte"),
    "lengths": (
        resealed(forged(nothing), set_byte(HEADER_BYTES + 4, 200)),
        "the lengths in a block add up to 203, not 6",
    ),
    "times": (
        resealed(forged(nothing), set_byte(56, 6)),
        "the times of the entries are not those of the block's header",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_block_whose_columns_do_not_fit_is_found(name: str, tmp_path: Path) -> None:
    block, what = FORGED[name]
    good = encode(3, [Update(Op.PUT, b"key", b"body")], 7)
    with Log.open(tmp_path / "log", CONFIG) as log:
        log.append(block)
        log.append(good)
    (found,) = findings(tmp_path / "log")
    assert (found.severity, found.offset, found.what) == (Severity.ERROR, 112, what)


def test_an_entry_that_was_damaged_before_its_block_was_sealed(tmp_path: Path) -> None:
    at = HEADER_BYTES + 2 * ENTRY.itemsize + 2 * 3 + 4
    with Log.open(tmp_path / "log", CONFIG) as log:
        log.append(resealed(forged(nothing), set_byte(at, ord("B"))))
    assert findings(tmp_path / "log") == []
    (found,) = findings(tmp_path / "log", deep=True)
    assert found.what == "entries fail their own checksum: 2"
