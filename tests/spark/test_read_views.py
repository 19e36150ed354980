"""State and changes, now and in the past; and the past that compaction has taken."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan

from sirius.errors import ResyncRequired, UsageError
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Op, Update
from spark_connector.reading.pinned import pin
from spark_connector.reading.views import CLOCKS_AGREE_US, last_before
from tests.spark.readlogs import (
    T0_US,
    Row,
    delete,
    expected,
    make,
    numbered,
    open_log,
    put,
    read,
    write,
)

EVERYTHING = CompactionPolicy(dead_fraction_min=0)


def state(rows: list[Row], upto: int = 2**62) -> list[Row]:
    newest = {row[3]: row for row in rows if row[0] <= upto}
    return sorted(row for row in newest.values() if row[2] == "PUT")


def changes(rows: list[Row], first: int = 1, last: int = 2**62) -> list[Row]:
    return sorted({row[3]: row for row in rows if first <= row[0] <= last}.values())


def compact(path: Path, policy: CompactionPolicy = EVERYTHING) -> None:
    with open_log(path) as log:
        log.rotate()
        log.compact(policy)


updates = st.one_of(
    st.tuples(st.just(Op.PUT), st.integers(0, 5), st.binary(max_size=8)),
    st.tuples(st.just(Op.DELETE), st.integers(0, 5), st.just(b"")),
    st.tuples(st.just(Op.NOOP), st.just(0), st.just(b"")),
).map(lambda each: Update(each[0], b"" if each[0] == Op.NOOP else b"key%d" % each[1], each[2]))
histories = st.lists(st.lists(updates, min_size=1, max_size=6), max_size=12)


@settings(max_examples=20, deadline=None)
@given(histories, st.integers(0, 4), st.data())
def test_views_of_random_logs(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[list[Update]],
    rotate_after: int,
    data: st.DataObject,
) -> None:
    log = make(tmp_path_factory.mktemp("views") / "log", history, rotate_after=rotate_after)
    rows, last = expected(log), sum(map(len, history))
    assert read(log) == rows
    assert sorted(read(log, view="state")) == state(rows)
    assert sorted(read(log, view="changes")) == changes(rows)
    if last:
        a, b = sorted(data.draw(st.tuples(st.integers(1, last), st.integers(1, last))))
        assert sorted(read(log, view="state", asOf=str(b))) == state(rows, b)
        assert sorted(read(log, view="state", toSeq=str(b))) == state(rows, b)
        ranged = read(log, view="changes", fromSeq=str(a), toSeq=str(b))
        assert sorted(ranged) == changes(rows, a, b)
    before = state(rows)
    compact(log)
    assert [row[:5] for row in sorted(read(log, view="state"))] == [row[:5] for row in before]
    assert read(log) == expected(log)


def test_a_state_in_many_segments_is_read_where_something_is_live(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(20, 50, keys=3), rotate_after=2)
    assert {row[5] for row in read(log, view="state")} == {10}


def test_filters_are_for_what_a_view_shows_and_not_for_what_it_is_made_of(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a", b"1"), put("b", b"1")], [put("a", b"2"), delete("b")]])
    assert read(log, view="state", filters=[EqualTo(("seq",), 1)]) == []
    assert read(log, view="state", columns="seq", filters=[EqualTo(("key",), "a")]) == [(3,)]
    assert read(log, view="changes", columns="key", filters=[EqualTo(("op",), "PUT")]) == [("a",)]
    assert read(log, view="state", columns="key", filters=[GreaterThan(("seq",), 2)]) == [("a",)]


def at(seconds: float) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=T0_US, seconds=seconds)
    return moment.isoformat()


def test_the_state_at_a_time_is_that_after_the_last_update_of_that_time(tmp_path: Path) -> None:
    blocks = [[put("a", b"0")], [put("a", b"1"), put("b", b"1")], [delete("b")]]
    log = make(tmp_path / "log", blocks, rotate_after=2)
    found = {
        seconds: read(log, view="state", asOf=at(seconds), columns="key,body")
        for seconds in (-1, 0, 0.5, 1, 1.9, 2, 100)
    }
    first, second = [("a", b"0")], [("a", b"1"), ("b", b"1")]
    assert list(found.values()) == [[], first, first, second, second, [("a", b"1")], [("a", b"1")]]


def test_a_time_within_a_block_is_found_to_the_record(tmp_path: Path) -> None:
    path = make(tmp_path / "log", numbered(4, 10))
    assert [last_before(pin(str(path)), T0_US + 1_000_000 * n) for n in range(-1, 5)] == [
        0,
        10,
        20,
        30,
        40,
        40,
    ]


def test_there_is_no_state_of_the_future(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a")]])
    with pytest.raises(UsageError, match=r"there is no state at 2 yet: the log ends at 1"):
        read(log, view="state", asOf="2")


# ---------------------------------------------------------------------- history


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """1 to 3 stand as they were written, 4 was superseded by 6 and removed; then the log went on, much later."""
    path = make(
        tmp_path / "log",
        [[put("a"), put("b"), put("c")], [put("d", b"old"), put("e")], [put("d", b"new")]],
        rotate_after=1,
    )
    compact(path)
    with open_log(path) as log:
        write(log, [put("d", b"newer")], T0_US + 3_600_000_000)
        write(log, [put("d", b"newest")], T0_US + 3_700_000_000)
    for file in path.glob("segments/*/data"):
        os.utime(file, ns=(0, (T0_US + 5_000_000) * 1000))
    return path


def test_states_before_the_first_hole_are_whole(compacted: Path) -> None:
    assert read(compacted, view="state", asOf="3", columns="key") == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize("moment", ["4", "5", at(1.5)])
def test_a_state_that_compaction_took_something_from_is_refused(
    compacted: Path, moment: str
) -> None:
    with pytest.raises(UsageError, match=r"removed updates from 4 on.*up to 3 or from 6 on"):
        read(compacted, view="state", asOf=moment)


@pytest.mark.parametrize(("seq", "body"), [("6", b"new"), ("7", b"newer"), ("8", b"newest")])
def test_states_from_the_compaction_on_are_whole(compacted: Path, seq: str, body: bytes) -> None:
    assert ("d", body) in read(compacted, view="state", asOf=seq, columns="key,body")


def test_clocks_need_not_agree_to_the_second(compacted: Path) -> None:
    """Record 7 may have been there when the file was written, if clocks differ by a minute."""
    late_us = T0_US + 3_600_000_000 - CLOCKS_AGREE_US
    for file in compacted.glob("segments/*/data"):
        os.utime(file, ns=(0, late_us * 1000))
    with pytest.raises(UsageError, match=r"from 7 on"):
        read(compacted, view="state", asOf="6")
    assert read(compacted, view="state", asOf="7", columns="seq")[-1] == (7,)


def test_changes_of_a_range_are_refused_in_the_same_way(compacted: Path) -> None:
    with pytest.raises(UsageError, match=r"removed updates from 4 on.*whole from 6 on"):
        read(compacted, view="changes", fromSeq="4", toSeq="5")
    assert read(compacted, view="changes", fromSeq="1", toSeq="2", columns="seq") == [(1,), (2,)]
    assert read(compacted, view="changes", fromSeq="4", columns="seq") == [(5,), (8,)]


def test_changes_are_refused_where_deletes_are_gone(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a"), put("b")], [delete("a")], [put("c")]], rotate_after=1)
    compact(log)
    compact(log, CompactionPolicy(dead_fraction_min=0, drop_deletes_upto=Seq(10)))
    assert read(log, columns="seq,op") == [(2, "PUT"), (4, "PUT")]
    for first in ("2", "3"):
        with pytest.raises(ResyncRequired, match="tombstone floor 3"):
            read(log, view="changes", fromSeq=first)
    assert read(log, view="changes", columns="key") == [("b",), ("c",)]
    assert read(log, view="changes", fromSeq="4", columns="key") == [("c",)]
