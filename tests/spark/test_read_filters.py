"""Filters: what is taken over is answered to the letter, and keeps segments and blocks from being read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_connector.reading.predicate import Condition, Predicate
from spark_connector.reading.report import ReadReport
from tests.spark.readlogs import T0_US, Row, expected, make, numbered, put, read, reader_for, rows

COLUMNS = ("seq", "ts", "op", "key", "body", "segment")
KEYS = ("key1", "key2", "ké", "clé/ß", "Ω", "k", "")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def holds(each: Filter, row: Row) -> bool:
    """Answer a filter in plain Python. Keys compare by their bytes, as in Spark."""
    if isinstance(each, Not):
        return not holds(each.child, row)
    value = row[COLUMNS.index(each.attribute[0])]  # type: ignore[attr-defined]
    if isinstance(each, IsNotNull):
        return value is not None
    wanted: Any = each.value  # type: ignore[attr-defined]
    if isinstance(each, In):
        return value in [_plain(one) for one in wanted]
    wanted = _plain(wanted)
    if isinstance(value, str):
        value, wanted = value.encode(), wanted.encode()
    tests: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: value == wanted,
        EqualNullSafe: lambda: value == wanted,
        LessThan: lambda: value < wanted,
        LessThanOrEqual: lambda: value <= wanted,
        GreaterThan: lambda: value > wanted,
        GreaterThanOrEqual: lambda: value >= wanted,
        StringStartsWith: lambda: value.startswith(wanted),
        StringEndsWith: lambda: value.endswith(wanted),
        StringContains: lambda: wanted in value,
    }
    return tests[type(each)]()


def _plain(value: Any) -> Any:
    return us(value) if isinstance(value, datetime) else value


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "seq": st.integers(-3, 70),
    "segment": st.integers(0, 8),
    "ts": st.integers(-1, 14).map(lambda n: at(T0_US + n * 500_000)),
    "op": st.sampled_from(["PUT", "DELETE", "P", "put"]),
    "key": st.sampled_from(KEYS),
}
COMPARISONS = [EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
WORDS = [StringStartsWith, StringEndsWith, StringContains]


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(list(VALUES)))
    kinds: list[Any] = [*COMPARISONS, In, *(WORDS if column in ("op", "key") else [])]
    kind = draw(st.sampled_from(kinds))
    values = st.lists(VALUES[column], min_size=1, max_size=3)
    chosen: Filter = kind((column,), draw(values if kind is In else VALUES[column]))
    return Not(chosen) if draw(st.booleans()) else chosen


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    blocks = [
        [
            update._replace(key=KEYS[(number + place) % (len(KEYS) - 1)].encode())
            for place, update in enumerate(block)
        ]
        for number, block in enumerate(numbered(12, 5))
    ]
    return make(tmp_path_factory.mktemp("filters") / "log", blocks, rotate_after=2)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=st.lists(filters(), max_size=4))
def test_any_filters_pick_what_plain_python_picks(log: Path, chosen: list[Filter]) -> None:
    wanted = [row for row in expected(log) if all(holds(each, row) for each in chosen)]
    assert read(log, filters=chosen) == wanted


def test_what_cannot_be_answered_to_the_letter_goes_back() -> None:
    back: list[Filter] = [
        EqualTo(("body",), b"x"),
        IsNotNull(("body",)),
        IsNull(("key",)),
        EqualTo(("key",), None),
        EqualTo(("seq",), 1.5),
        In(("seq",), [1, None]),  # type: ignore[arg-type]
        Not(IsNotNull(("seq",))),
        GreaterThan(("ts",), datetime(2026, 1, 1)),
    ]
    taken: list[Filter] = [IsNotNull(("seq",)), EqualTo(("seq",), 5)]
    predicate, others = Predicate.of([*back, *taken])
    assert others == back
    assert [each.value for each in predicate.conditions] == [5]


@pytest.mark.parametrize("test", ["=", "<", "<=", ">", ">=", "in"])
def test_bounds_hold_all_that_passes_and_no_more(test: str) -> None:
    condition = Condition("seq", test, (3, 7) if test == "in" else 5)
    passing = [number for number in range(1, 20) if condition.holds(number)]
    low, high = Predicate((condition,)).bounds("seq") or (0, 0)
    assert (max(low, 1), min(high, 19)) == (passing[0], passing[-1])
    assert Predicate((Condition("seq", test, condition.value, negated=True),)).bounds("seq") is None
    assert Predicate((condition,)).bounds("ts") is None


class Report:
    """What a read with these filters touched."""

    def __init__(self, log: Path, folder: Path, *chosen: Filter, **options: str) -> None:
        found = rows(reader_for(log, filters=chosen, report=str(folder), **options))
        report = ReadReport.load(folder)
        self.seqs = [row[0] for row in found]
        self.segments, self.nbytes, self.rows = report.segments, report.nbytes, report.rows


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 segments of 4 blocks of 50 records with bodies of 6 kB: 300 kB a block."""
    return make(
        tmp_path_factory.mktemp("wide") / "log", numbered(32, 50, body=6000), rotate_after=4
    )


def test_without_a_filter_everything_is_read_once(wide: Path, tmp_path: Path) -> None:
    report = Report(wide, tmp_path)
    size = sum(file.stat().st_size for file in wide.glob("segments/*/data"))
    assert report.segments == tuple(range(1, 9))
    assert report.rows == 1600
    assert 0.98 * size < report.nbytes < 1.1 * size


def test_a_sequence_number_leads_to_one_block(wide: Path, tmp_path: Path) -> None:
    report = Report(wide, tmp_path, EqualTo(("seq",), 777))
    assert (report.seqs, report.segments) == ([777], (4,))
    assert report.nbytes < 400_000


def test_options_narrow_what_is_read_just_so(wide: Path, tmp_path: Path) -> None:
    report = Report(wide, tmp_path, fromSeq="201", toSeq="400")
    assert (report.segments, report.rows) == ((2,), 200)


def test_a_time_leads_to_its_blocks(wide: Path, tmp_path: Path) -> None:
    moment = at(T0_US + 9_000_000)
    report = Report(wide, tmp_path, EqualTo(("ts",), moment))
    assert (report.seqs, report.segments) == (list(range(451, 501)), (3,))
    assert report.nbytes < 400_000


def test_a_segment_leads_to_itself(wide: Path, tmp_path: Path) -> None:
    report = Report(wide, tmp_path, In(("segment",), (2, 7)))
    assert report.segments == (2, 7)
    assert report.rows == 400


def test_filters_that_nothing_passes_read_nothing(wide: Path, tmp_path: Path) -> None:
    chosen = [GreaterThan(("seq",), 9), LessThan(("seq",), 4)]
    report = Report(wide, tmp_path, *chosen)
    assert (report.seqs, report.segments, report.nbytes) == ([], (), 0)


def test_blocks_far_apart_are_read_without_what_is_between(wide: Path, tmp_path: Path) -> None:
    times = (at(T0_US), at(T0_US + 2_000_000))
    report = Report(wide, tmp_path, In(("ts",), times))
    assert report.segments == (1,)
    # In the order of blocks 0 and 2: both bounds of the time cover block 1, whose rows are not picked.
    assert report.seqs == [*range(1, 51), *range(101, 151)]


def test_bodies_are_not_read_where_nobody_asks_for_them(wide: Path, tmp_path: Path) -> None:
    verified = Report(wide, tmp_path / "a", columns="seq,key")
    unverified = Report(wide, tmp_path / "b", columns="seq,key", verify="false")
    bodies = Report(wide, tmp_path / "c", columns="seq,body", verify="false")
    assert verified.seqs == unverified.seqs == bodies.seqs
    assert unverified.nbytes < verified.nbytes / 50
    assert bodies.nbytes == verified.nbytes


def test_bodies_not_read_give_the_same_rows(wide: Path) -> None:
    chosen = [StringStartsWith(("key",), "key3"), GreaterThan(("seq",), 500)]
    columns = "seq,ts,op,key,segment"
    assert read(wide, filters=chosen, columns=columns, verify="false") == read(
        wide, filters=chosen, columns=columns
    )


def test_small_blocks_are_read_whole_even_so(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put(f"k{n}", b"x" * 100)] for n in range(50)])
    assert read(log, columns="seq,key", verify="false") == [(n + 1, f"k{n}") for n in range(50)]


def test_conditions_may_be_options_of_a_load(log: Path) -> None:
    whole = expected(log)
    options: dict[str, tuple[str, Callable[[Row], bool]]] = {
        "key": ("Ω", lambda row: row[3] == "Ω"),
        "keyPrefix": ("k", lambda row: row[3].startswith("k")),
        "keyFrom": ("ké", lambda row: row[3].encode() >= "ké".encode()),
        "keyUntil": ("key2", lambda row: row[3].encode() < b"key2"),
        "op": ("DELETE", lambda row: row[2] == "DELETE"),
        "since": (at(T0_US + 3_000_000).isoformat(), lambda row: row[1] >= T0_US + 3_000_000),
        "until": (at(T0_US + 5_000_000).isoformat(), lambda row: row[1] < T0_US + 5_000_000),
    }
    for name, (text, test) in options.items():
        found = read(log, **{name: text})
        assert found == [row for row in whole if test(row)]
        assert 0 < len(found) < len(whole)
    both = read(log, key="Ω", op="put", filters=[GreaterThan(("seq",), 9)])
    assert both == [row for row in whole if row[3] == "Ω" and row[2] == "PUT" and row[0] > 9]
