"""Picking records: options that all commands share, and the masks that they become.

Everything but the regular expression is a comparison of columns. Sequence numbers and times also narrow the part of
the log that is read at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
import numpy as np

from sirius.errors import UsageError
from sirius.wal import Batch
from sirius.wal.batch import Mask
from sirius.wal.record import CONTROL_FROM
from waltool.matching import Matcher
from waltool.params import OPERATIONS, moment, regex, sequence_number
from waltool.source import Source


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records are wanted. `until_us` is the first time that is not."""

    first: int | None = None
    last: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    ops: tuple[str, ...] = ()
    key: Matcher | None = None
    control: bool = False

    def __post_init__(self) -> None:
        if self.first is not None and self.last is not None and self.first > self.last:
            raise UsageError(f"--first {self.first} is behind --last {self.last}")

    @property
    def takes_all(self) -> bool:
        """Whether every record between the bounds is wanted."""
        narrow = (self.since_us, self.until_us, self.key)
        return self.control and not self.ops and all(limit is None for limit in narrow)

    def bounds(self, source: Source) -> tuple[int, int]:
        """Return the sequence numbers to read; the first is behind the last if there are none."""
        first, last = source.time_bounds(self.since_us, self.until_us)
        if self.first is not None:
            first = max(first, self.first)
        if self.last is not None:
            last = min(last, self.last)
        return first, last

    def batches(self, source: Source) -> Iterator[Batch]:
        """Yield the wanted records of a log."""
        return map(self.apply, self.unfiltered(source))

    def unfiltered(self, source: Source) -> Iterator[Batch]:
        """Yield all records between the bounds."""
        first, last = self.bounds(source)
        return source.batches(first, last) if first <= last else iter(())

    def apply(self, batch: Batch) -> Batch:
        """Keep the wanted records of a batch. The bounds are the reader's to keep."""
        if self.takes_all:
            return batch
        batch = batch.where(self._mask(batch))
        return batch if self.key is None else batch.where(self.key.mask(batch.key_column))

    def _mask(self, batch: Batch) -> Mask:
        op, ts = batch.op, batch.entries["ts"]
        mask: Mask = np.ones(len(batch), np.bool_)
        if self.ops:
            mask = np.isin(op, [OPERATIONS[name] for name in self.ops])
        elif not self.control:
            mask = op < CONTROL_FROM
        if self.since_us is not None:
            mask &= ts >= self.since_us
        if self.until_us is not None:
            mask &= ts < self.until_us
        return mask


_TIME = "TIME"
_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "first": click.option(
        "--first", type=sequence_number, metavar="SEQ", help="Begin at this sequence number."
    ),
    "last": click.option(
        "--last", type=sequence_number, metavar="SEQ", help="End with this sequence number."
    ),
    "since": click.option(
        "--since",
        type=moment,
        metavar=_TIME,
        help="From this time on: ISO 8601 (UTC unless it names a zone), or an age: 30m, 2h, 7d.",
    ),
    "until": click.option(
        "--until", type=moment, metavar=_TIME, help="Before this time; written as for --since."
    ),
    "op": click.option(
        "--op",
        type=click.Choice(list(OPERATIONS), case_sensitive=False),
        multiple=True,
        metavar="OP",
        help="Only this operation: put, delete, noop or membership; may be given more than once.",
    ),
    "key": click.option(
        "--key", type=regex, metavar="REGEX", help="Only keys in which this is found."
    ),
    "control": click.option(
        "--control", is_flag=True, help="Control entries (noop, membership) too."
    ),
}


def filter_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the named options (all, if none is named); it gets them as `wanted`, a `Filter`."""
    chosen = names or tuple(_OPTIONS)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **parameters: Any) -> Any:
            values = {name: parameters.pop(name) for name in chosen}
            return function(*args, wanted=_filter(**values), **parameters)

        for name in reversed(chosen):
            _OPTIONS[name](run)
        return run

    return decorate


def _filter(**values: Any) -> Filter:
    key = values.get("key")
    return Filter(
        first=values.get("first"),
        last=values.get("last"),
        since_us=values.get("since"),
        until_us=values.get("until"),
        ops=values.get("op", ()),
        key=None if key is None else Matcher.of_text(re.compile(key)),
        control=values.get("control", False),
    )
