"""Finds the events of a history that match a predicate, all at once.

A predicate is evaluated on candidate rows, which get fewer with each part of an `and`. `seq` and `time` are sorted
and cut the candidates by bisection, so they come first; topics are looked up in a small table; what is left is
compared in one pass: keys, prefixes, attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sirius.broadcast.columns import AnyColumn, Bytes, Ints, Lengths, Mask, windows
from sirius.broadcast.events import ABSENT
from sirius.broadcast.predicates.terms import (
    COMPARE,
    And,
    Atom,
    Attribute,
    KeyIs,
    KeyPrefix,
    Or,
    Predicate,
    SeqBelow,
    TimeBelow,
    TopicIs,
    topic_matches,
)

_RANK: Final = {SeqBelow: 0, TimeBelow: 0, TopicIs: 1, Attribute: 2, KeyIs: 3, KeyPrefix: 3}
"""The cheap parts of an `and` come first; what is not here comes last."""


class Table(NamedTuple):
    """The columns of a history, as evaluation sees them: rows in order of their sequence numbers."""

    seqs: Ints
    times: Ints
    topics: Sequence[str]
    topic_ids: AnyColumn
    key_starts: Ints
    key_lengths: Lengths
    keys: Bytes
    attributes: Mapping[str, Ints]


def matching(predicate: Predicate, table: Table, rows: Ints) -> Ints:
    """Return those of some rising row numbers that match, rising."""
    match predicate:
        case And(parts):
            for part in sorted(parts, key=lambda part: _RANK.get(type(part), len(_RANK))):
                rows = matching(part, table, rows)
            return rows
        case Or(parts):
            return np.unique(np.concatenate([matching(part, table, rows) for part in parts]))
        case SeqBelow(limit):
            return _before(rows, table.seqs, limit)
        case TimeBelow(limit):
            return _before(rows, table.times, limit)
    return rows[_holds(predicate, table, rows)]


def _holds(atom: Atom, table: Table, rows: Ints) -> Mask | slice:
    """Say for which of some rows an atom holds."""
    match atom:
        case TopicIs(pattern):
            fits = np.array([topic_matches(pattern, topic) for topic in table.topics], np.bool_)
            return fits[table.topic_ids[rows]]
        case KeyIs(key):
            return _keys_begin(table, rows, key, len(key))
        case KeyPrefix(prefix):
            return _keys_begin(table, rows, prefix, None)
        case Attribute(name, comparison, value) if name in table.attributes:
            found = table.attributes[name][rows]
            holds: Mask = (found != ABSENT) & COMPARE[comparison](found, value)
            return holds
    return slice(0)


def _before(rows: Ints, column: Ints, limit: int) -> Ints:
    return rows[: np.searchsorted(rows, np.searchsorted(column, limit))]


def _keys_begin(table: Table, rows: Ints, text: bytes, length: int | None) -> Mask:
    """Say which keys begin with a text, and have a length if one is given."""
    lengths = table.key_lengths[rows]
    holds: Mask = lengths >= len(text) if length is None else lengths == length
    if text and bool(holds.any()):
        found = windows(table.keys, len(text))[table.key_starts[rows[holds]]]
        wanted = np.frombuffer(text, np.uint8)
        holds[holds] = (found.view(np.uint8).reshape(-1, len(text)) == wanted).all(axis=1)
    return holds
