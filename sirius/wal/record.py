"""What one entry of the log says, and the limits on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from sirius.errors import InvalidRecord
from sirius.types import Seq


class Op(IntEnum):
    """What an entry does. PUT and DELETE are the application's; the others are control entries,
    which no handler ever sees."""

    PUT = 1
    DELETE = 2
    NOOP = 3
    MEMBERSHIP = 4
    SESSION = 5


CONTROL_FROM: Final = int(Op.NOOP)
"""Operations from this number on are control entries."""


class Record(NamedTuple):
    """One decided entry, as read from the log. Times are microseconds since 1970, in UTC."""

    seq: Seq
    ts_us: int
    op: Op
    key: str
    body: bytes
    session: int = 0
    serial: int = 0


class Update(NamedTuple):
    """One entry that has no sequence number yet. The key is UTF-8 already: see `key_bytes`."""

    op: Op
    key: bytes
    body: bytes = b""
    session: int = 0
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on what is written, and on what is believed when it is read."""

    key_bytes_max: int = 32 * 1024
    body_bytes_max: int = 16 * 1024 * 1024
    block_bytes_max: int = 64 * 1024 * 1024


DEFAULT_LIMITS: Final = Limits()
_OPS: Final = frozenset(map(int, Op))


def key_bytes(key: str) -> bytes:
    """Return a key as it stands in the log, or say what is wrong with it."""
    if not isinstance(key, str):
        raise InvalidRecord(f"a key is a str, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"key {key!r} cannot be written as UTF-8: {error.reason}") from None


def check_updates(updates: Sequence[Update], limits: Limits) -> None:
    """Refuse what the log does not take, naming the entry and the limit."""
    for position, update in enumerate(updates):
        if problem := _problem(update, limits):
            raise InvalidRecord(f"entry {position} of {len(updates)}: {problem}")


def _problem(update: Update, limits: Limits) -> str | None:
    op, key, body, session, serial = update
    if op not in _OPS:
        return f"there is no operation {op!r}"
    if not isinstance(key, bytes) or not isinstance(body, bytes):
        return f"key and body are bytes, not {type(key).__name__}, {type(body).__name__}"
    if op < CONTROL_FROM and not key:
        return "the key is empty"
    if len(key) > limits.key_bytes_max:
        return f"the key has {len(key)} bytes, the limit is {limits.key_bytes_max}"
    if len(body) > limits.body_bytes_max:
        return f"the body has {len(body)} bytes, the limit is {limits.body_bytes_max}"
    if op == Op.DELETE and body:
        return "a DELETE has no body"
    if not isinstance(session, int) or not isinstance(serial, int) or (session | serial) >> 64:
        return f"session {session!r} and serial {serial!r} are not both numbers of 64 bits"
    return None
