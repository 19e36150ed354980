"""Searching a column of keys or bodies for a regular expression.

A plain word is looked for in all pieces of a column at once, by the search of `bytes`, which goes through gigabytes a
second; pieces without it cost nothing. An expression that a word must be part of is tried only on pieces that have it,
any other on each piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import is_not

import numpy as np

from sirius.wal.batch import Column, Mask

_SPECIAL = frozenset("*+?{}[]\\|()")
_BETWEEN_WORDS = re.compile(r"\.[*+?]{1,2}|[.^$]")


@dataclass(frozen=True)
class Matcher:
    """A regular expression, for keys (text) or for bodies (bytes)."""

    text: re.Pattern[str] | None = None
    octets: re.Pattern[bytes] | None = None

    @classmethod
    def of_text(cls, pattern: re.Pattern[str]) -> Matcher:
        """Search pieces as text, which they all must be."""
        return cls(text=pattern)

    @classmethod
    def of_bytes(cls, pattern: re.Pattern[str]) -> Matcher:
        """Search pieces as bytes; characters of the expression beyond ASCII stand for their UTF-8."""
        flags = pattern.flags & ~re.UNICODE
        return cls(octets=re.compile(pattern.pattern.encode(), flags))

    @cached_property
    def words(self) -> list[bytes]:
        """The words that every match contains, in order, parted by what is none; nothing if that is hard to say."""
        pattern = self.text or self.octets
        if pattern is None or pattern.flags & ~re.UNICODE:
            return []
        raw = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
        parts = _BETWEEN_WORDS.split(raw)
        return [] if _SPECIAL & set("".join(parts)) else [part.encode() for part in parts]

    def mask(self, column: Column) -> Mask:
        """Say which pieces of a column match."""
        word = max(self.words, key=len, default=b"")
        if not word:
            return self._tried(column)
        has_word = _with_word(column, word)
        if len(self.words) > 1:
            rows = np.flatnonzero(has_word)
            has_word[rows] = self._tried(column.pick(rows, column.lengths[rows]))
        return has_word

    def _tried(self, column: Column) -> Mask:
        found = map(is_not, self._search(column), repeat(None))
        return np.fromiter(found, np.bool_, len(column.lengths))

    def _search(self, column: Column) -> Iterator[object]:
        if self.text is not None:
            return map(self.text.search, column.texts())
        if self.octets is not None:
            return map(self.octets.search, column.pieces())
        return repeat(None)


def _with_word(column: Column, word: bytes) -> Mask:
    blob = column.blob()
    mask: Mask = np.zeros(len(column.lengths), np.bool_)
    at = blob.find(word)
    if at < 0:
        return mask
    found = re.compile(re.escape(word)).finditer(blob, at)
    begins = np.array([match.start() for match in found], np.int64)
    ends = np.cumsum(column.lengths, dtype=np.int64)
    rows = np.searchsorted(ends, begins, side="right")
    last_rows = np.searchsorted(ends, begins + len(word) - 1, side="right")
    mask[rows] = True
    # A match that reaches into the next piece is none, and may have hidden one that begins inside it.
    across = rows != last_rows
    for row, last_row in zip(rows[across].tolist(), last_rows[across].tolist(), strict=True):
        for touched in range(row, last_row + 1):
            end = int(ends[touched])
            mask[touched] = blob.find(word, end - int(column.lengths[touched]), end) >= 0
    return mask
