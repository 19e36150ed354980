"""Blocks that do nothing, for tests that need some block."""

from __future__ import annotations

from sirius.wal import Block, Op, Update, encode


def noops(first: int, last: int) -> Block:
    return encode(first, [Update(Op.NOOP, b"")] * (last - first + 1), 0)
