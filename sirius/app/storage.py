"""The state of the reference application: a dict."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from heapq import nsmallest
from typing import Final, NamedTuple

from sirius.handler import HandledUpdate, RequestHandler, SiriusResult
from sirius.types import Seq

_MODULUS: Final = 1 << 128


class Digest(NamedTuple):
    """The sum of a state. Two nodes with the same digest have the same keys with the same values."""

    hex: str
    keys: int
    seq: int
    """The state was at least as new as this."""


class Storage(RequestHandler):
    """Values by key. Read by any thread, changed by the apply thread alone.

    `seq` is set after the values that belong to it, so who reads `seq` first and a value then sees a state that is at
    least as new as that.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.seq = Seq(0)

    def handle_batch(self, updates: Sequence[HandledUpdate]) -> None:
        """Take updates. It cannot fail half-way."""
        values = self.values
        for _, _, key, body in updates:
            if body is None:
                values.pop(key, None)
            else:
                values[key] = body
        # A parallel replay is not in order.
        self.seq = max(self.seq, updates[-1].seq)

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        """Not called, since there is `handle_batch`."""
        self.values[key] = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        """Not called, since there is `handle_batch`."""
        self.values.pop(key, None)
        return SiriusResult.none()

    def handle_get(self, key: str) -> SiriusResult:
        """Look a key up."""
        body = self.values.get(key)
        return SiriusResult.none() if body is None else SiriusResult.some(body)

    def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Return the first keys behind `after`, sorted. Goes through all of them: O(n)."""
        found = (key for key in list(self.values) if key.startswith(prefix) and key > after)
        return nsmallest(limit, found)

    def digest(self) -> Digest:
        """Sum up the state, as `waltool digest` does (see `sirius.wal.state`). O(n)."""
        seq, values = self.seq, self.values.copy()
        total = sum(_element(key.encode(), body) for key, body in values.items()) % _MODULUS
        return Digest(f"{total:032x}", len(values), int(seq))


def _element(key: bytes, body: bytes) -> int:
    hashed = blake2b(len(key).to_bytes(4, "little"), digest_size=16)
    hashed.update(key)
    hashed.update(body)
    return int.from_bytes(hashed.digest(), "little")
