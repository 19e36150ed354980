"""Conditions that rows have to meet, and how they are answered.

They come from the options of a load, or from filters that Spark hands down. Of these, what can be answered to the
letter is taken over, and Spark does not look at it again; the rest goes back to Spark. A condition does its work
twice: on the driver it rules out segments and blocks by their bounds, in a task it picks rows.

Only columns that are never NULL are taken (all but `body`), so the opposite of a condition is its negation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sirius.wal.batch import Mask
from sirius.wal.block import SEQ_MAX
from spark_connector.options import Options
from spark_connector.schema import OPS

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from spark_connector.reading.rows import Numbers, Rows

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MIN, _TIME_MAX = -(2**63), 2**63 - 1
_TYPES: Final = {"seq": int, "segment": int, "ts": datetime, "op": str, "key": str}

Test = Callable[[Any, Any], Any]
_COMPARE: Final[dict[str, Test]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ON_VALUE: Final[dict[str, Test]] = {
    **_COMPARE,
    "in": lambda value, wanted: value in wanted,
    "begins": str.startswith,
    "ends": str.endswith,
    "has": operator.contains,
}
_ON_KEYS: Final[dict[str, Test]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "in": lambda keys, wanted: pc.is_in(keys, pa.array(wanted, pa.string())),
    "begins": pc.starts_with,
    "ends": pc.ends_with,
    "has": pc.match_substring,
}
_TESTS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "StringStartsWith": "begins",
    "StringEndsWith": "ends",
    "StringContains": "has",
}
"""Spark's filters by the names of their classes. `IsNotNull` is not among them: it always holds."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What one column has to be. Times are microseconds."""

    column: str
    test: str
    value: Any
    negated: bool = False

    def holds(self, value: Any) -> bool:
        """Say whether one value passes."""
        return bool(_ON_VALUE[self.test](value, self.value)) != self.negated

    def bounds(self) -> tuple[int | None, int | None]:
        """Return between which numbers a value has to lie, as far as one can say."""
        if self.negated:
            return None, None
        value = self.value
        if self.test == "in":
            return (min(value), max(value)) if value else (1, 0)
        return {
            "=": (value, value),
            "<": (None, value - 1),
            "<=": (None, value),
            ">": (value + 1, None),
            ">=": (value, None),
        }[self.test]

    def mask(self, rows: Rows | Numbers, segment: int) -> Mask:
        """Say which rows pass."""
        found = self._mask(rows, segment)
        return ~found if self.negated else found

    def _mask(self, rows: Rows | Numbers, segment: int) -> Mask:
        if self.column == "key":
            keys: Mask = _ON_KEYS[self.test](rows.keys, self.value).to_numpy(zero_copy_only=False)
            return keys
        test = _ON_VALUE[self.test]
        if self.column == "segment":
            return np.full(len(rows), bool(test(segment, self.value)))
        if self.column == "op":
            wanted = [int(op) for op, name in OPS.items() if test(name, self.value)]
            return np.isin(rows.ops, wanted)
        return self._number_mask(rows.numbers(self.column))

    def _number_mask(self, column: Any) -> Mask:
        if self.test == "in":
            return np.isin(column, np.array(self.value, np.int64))
        mask: Mask = _COMPARE[self.test](column, self.value)
        return mask


@dataclass(frozen=True, slots=True)
class Predicate:
    """Conditions that all have to hold."""

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> tuple[Predicate, list[Filter]]:
        """Return what is answered here, and the filters that are not."""
        taken: list[Condition] = []
        others: list[Filter] = []
        for each in filters:
            conditions = _conditions(each)
            if conditions is None:
                others.append(each)
            else:
                taken += conditions
        return cls(tuple(taken)), others

    @classmethod
    def asked(cls, options: Options) -> Predicate:
        """Return the conditions that options of a load name."""
        values = (
            ("key", "=", options.key),
            ("key", "begins", options.key_prefix),
            ("key", ">=", options.key_from),
            ("key", "<", options.key_until),
            ("ts", ">=", options.since and to_us(options.since)),
            ("ts", "<", options.until and to_us(options.until)),
            ("op", "=", options.op and options.op.upper()),
        )
        return cls(tuple(Condition(*each) for each in values if each[2] is not None))

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate((*self.conditions, *other.conditions))

    @property
    def columns(self) -> set[str]:
        """The columns that have to be looked at."""
        return {condition.column for condition in self.conditions}

    def bounds(self, column: str) -> tuple[int, int] | None:
        """Return the least and the greatest value of `seq` or `ts` that may pass; None if all may."""
        lows, highs = [], []
        for condition in self.conditions:
            if condition.column == column:
                low, high = condition.bounds()
                lows += [] if low is None else [low]
                highs += [] if high is None else [high]
        if not lows and not highs:
            return None
        ends = (0, SEQ_MAX) if column == "seq" else (_TIME_MIN, _TIME_MAX)
        return max([ends[0], *lows]), min([ends[1], *highs])

    def takes_segment(self, segment: int) -> bool:
        """Say whether rows of a segment may pass, by its number."""
        return all(each.holds(segment) for each in self.conditions if each.column == "segment")

    def mask(self, rows: Rows | Numbers, segment: int) -> Mask | None:
        """Say which rows pass; None if all do."""
        mask: Mask | None = None
        # Keys come last: they cost most, and often nothing is left by then.
        for condition in sorted(self.conditions, key=lambda each: each.column == "key"):
            if mask is not None and not mask.any():
                return mask
            found = condition.mask(rows, segment)
            mask = found if mask is None else mask & found
        return mask


def _conditions(given: Filter) -> Sequence[Condition] | None:
    """Turn one of Spark's filters into conditions; None if it cannot be answered here."""
    negated = type(given).__name__ == "Not"
    inner: Any = given.child if negated else given  # type: ignore[attr-defined]
    name, column = type(inner).__name__, ".".join(inner.attribute)
    if column not in _TYPES:
        return None
    if name == "IsNotNull" and not negated:
        return ()
    test = _TESTS.get(name)
    value = None if test is None else _value(column, test, inner.value)
    return None if value is None or test is None else (Condition(column, test, value, negated),)


def _value(column: str, test: str, value: Any) -> Any:
    """Return a filter's value as rows hold it, or None if it is of another kind."""
    if test == "in":
        values = [_value(column, "=", each) for each in value]
        return None if None in values else tuple(values)
    if not isinstance(value, _TYPES[column]) or isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return None if value.tzinfo is None else to_us(value)
    return value


def to_us(moment: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
