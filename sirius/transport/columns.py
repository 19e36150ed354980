"""Updates on the wire: a column of operations, one of the keys' lengths, one of the bodies', all keys, all bodies.

Nothing here is done update by update that numpy or a join can do for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sirius.errors import BadMessage
from sirius.wal.block import ENTRY_BYTES, HEADER_BYTES, keys_fault
from sirius.wal.record import CONTROL_FROM, Limits, Op, Update

Lengths = npt.NDArray[np.uint32]
_APPLICATION: Final = bytes(range(Op.PUT, CONTROL_FROM))
_OPS: Final = {int(op): op for op in Op}


def to_columns(updates: Sequence[Update]) -> dict[str, bytes]:
    """Return the fields of a protobuf `Updates`. Session and serial are not among them: a request has its own."""
    keys = [update[1] for update in updates]
    bodies = [update[2] for update in updates]
    return {
        "ops": bytes([update[0] for update in updates]),
        "key_lengths": np.fromiter(map(len, keys), "<u4", len(keys)).tobytes(),
        "body_lengths": np.fromiter(map(len, bodies), "<u4", len(bodies)).tobytes(),
        "keys": b"".join(keys),
        "bodies": b"".join(bodies),
    }


def from_columns(fields: Any, limits: Limits) -> list[Update]:
    """Return the updates of a protobuf `Updates`, or say why they are none. There is at least one."""
    ops, keys, bodies = fields.ops, fields.keys, fields.bodies
    key_lengths = _lengths(fields.key_lengths, len(ops))
    body_lengths = _lengths(fields.body_lengths, len(ops))
    if fault := (
        _operations_fault(ops, body_lengths)
        or _keys_fault(keys, key_lengths, limits)
        or _bodies_fault(bodies, body_lengths, limits)
        or size_fault(len(ops), len(keys) + len(bodies), limits)
    ):
        raise BadMessage(fault)
    operations = map(_OPS.__getitem__, ops)
    return list(map(Update, operations, _slices(keys, key_lengths), _slices(bodies, body_lengths)))


def size_fault(count: int, size: int, limits: Limits) -> str | None:
    """Say whether so many updates of so many bytes fit no block."""
    if not 1 <= count <= (limits.block_bytes_max - HEADER_BYTES - size) // ENTRY_BYTES:
        return f"{count} updates of {size} bytes are none, or more than a block holds"
    return None


def _lengths(column: bytes, count: int) -> Lengths:
    if len(column) != 4 * count:
        raise BadMessage(f"{count} operations come with {len(column)} bytes of lengths")
    return np.frombuffer(column, "<u4")


def _operations_fault(ops: bytes, body_lengths: Lengths) -> str | None:
    if ops.translate(None, _APPLICATION):
        return "an operation is neither a PUT nor a DELETE"
    if Op.DELETE in ops and bool(body_lengths[np.frombuffer(ops, np.uint8) == Op.DELETE].any()):
        return "a DELETE has a body"
    return None


def _keys_fault(keys: bytes, lengths: Lengths, limits: Limits) -> str | None:
    if int(lengths.sum(dtype=np.int64)) != len(keys):
        return "the lengths of the keys do not add up"
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= limits.key_bytes_max:
        return f"a key is empty or has more than {limits.key_bytes_max} bytes"
    return keys_fault(keys, lengths)


def _bodies_fault(bodies: bytes, lengths: Lengths, limits: Limits) -> str | None:
    if int(lengths.sum(dtype=np.int64)) != len(bodies):
        return "the lengths of the bodies do not add up"
    if len(lengths) and int(lengths.max()) > limits.body_bytes_max:
        return f"a body has more than {limits.body_bytes_max} bytes"
    return None


def _slices(column: bytes, lengths: Lengths) -> list[bytes]:
    ends = accumulate(lengths.tolist(), initial=0)
    return [column[start:end] for start, end in pairwise(ends)]
