"""When a delete may go: one direct case for each rule, and each rule is taken out once to be seen.

A case is a log, a pass that must keep the delete although it would be worth rewriting, and what
goes wrong if it does not. `control` is the same log in which the rule has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Log, LogConfig, Op
from sirius.wal.compaction.liveness import SegmentRows
from sirius.wal.compaction.survey import Survey, Tombstones
from sirius.wal.manifest import SegmentInfo
from sirius.wal.manifest import State as SegmentState
from tests.wal.bookkeeping import EAGER, NOW_US, SMALL, Issued
from tests.wal.histories import History, updates, written

DROP_ALL: Final = replace(EAGER, drop_deletes_upto=Seq(1000))
FILLER: Final = 620
"""A body that makes the next block begin a new segment."""


def put(key: str, size: int = 40) -> Issued:
    return (Op.PUT, key, bytes(size))


def delete(key: str) -> Issued:
    return (Op.DELETE, key, b"")


def deletes(log: Log) -> list[str]:
    return [record.key for record in log.records() if record.op == Op.DELETE]


def log_of(*history: Issued, fs: MemoryFileSystem | None = None, config: LogConfig = SMALL) -> Log:
    """Return a log with one block an entry, each with a time of its own."""
    log = written([], fs=fs, config=config)
    for entry in history:
        log.write(updates([entry]))
        log.flush()
    return log


def large(number: int) -> Issued:
    """An entry that fills a segment of its own, and that nothing supersedes."""
    return put(f"large{number}", FILLER)


def test_a_delete_goes_when_nothing_older_is_there_and_everybody_is_past_it() -> None:
    with log_of(delete("a"), large(1), large(2)) as log:
        result = log.compact(DROP_ALL)
        assert (deletes(log), result.deletes_dropped, log.tombstone_floor) == ([], 1, 1)


def test_a_segment_of_deletes_that_may_go_is_worth_rewriting() -> None:
    gone = [delete(f"key{n}") for n in range(40)]
    with log_of(*gone, large(1), large(2)) as log:
        result = log.compact(CompactionPolicy(drop_deletes_upto=Seq(1000)))
        assert (result.deletes_dropped, deletes(log)) == (40, [])


def test_a_delete_that_has_a_newer_update_goes_like_any_other_and_raises_no_floor() -> None:
    with log_of(put("a"), delete("a"), put("a"), large(1), large(2)) as log:
        log.compact(EAGER)
        assert (deletes(log), log.tombstone_floor) == ([], 0)


def test_the_floor_is_the_highest_delete_that_went_and_never_falls() -> None:
    with log_of(delete("a"), delete("b"), delete("c"), large(1), large(2)) as log:
        log.compact(replace(EAGER, drop_deletes_upto=Seq(2)))
        assert (deletes(log), log.tombstone_floor) == (["c"], 2)
        log.compact(EAGER)
        assert log.tombstone_floor == 2


def test_the_newest_delete_of_several_goes_and_the_others_with_it() -> None:
    """In one segment the first pass has to keep the newest: the others are older records of the key."""
    with log_of(delete("a"), delete("a"), large(1), large(2)) as log:
        assert log.compact(DROP_ALL).deletes_dropped == 0
        assert [record.seq for record in log.records() if record.op == Op.DELETE] == [2]
        assert log.compact(DROP_ALL).deletes_dropped == 1


# --- one case a rule ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    history: tuple[Issued, ...]
    policy: CompactionPolicy
    unless: Callable[[pytest.MonkeyPatch], None]
    """Takes the rule out of the code."""
    before: Callable[[Log], None] = lambda _: None


def without(owner: type, name: str, replacement: Callable[..., object]) -> Callable[..., None]:
    return lambda patch: patch.setattr(owner, name, replacement)


def set_first_apart(log: Log) -> None:
    log.quarantine(log.manifest.segments[0].id, "a test wants it so")


def alone_whatever_the_rows(patch: pytest.MonkeyPatch) -> None:
    """Count a delete as alone in its segment although an older record of its key is there."""
    survey = Survey._segment

    def segment(self: Survey, info: SegmentInfo, tombstones: Tombstones) -> object:
        init = SegmentRows.__init__

        def one_row_each(rows: SegmentRows, *args: object) -> None:
            entries, unique, newest_row, counts, superseded = args
            init(rows, entries, unique, newest_row, counts * 0 + 1, superseded)  # type: ignore[arg-type, operator]

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SegmentRows, "__init__", one_row_each)
            return survey(self, info, tombstones)

    patch.setattr(Survey, "_segment", segment)


def add_without(field: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Forget one of the policy's conditions on deletes."""
    real = Tombstones.add
    lenient: dict[str, object] = {
        "drop_deletes_upto": Seq(1000),
        "drop_deletes_before_us": None,
        "upto": None,
    }

    def add(self: Tombstones, *args: object) -> None:
        self._policy = replace(self._policy, **{field: lenient[field]})  # type: ignore[arg-type]
        real(self, *args)  # type: ignore[arg-type]

    return lambda patch: patch.setattr(Tombstones, "add", add)


RULES: Final = {
    # The put lies in a segment that is nearly all alive: it stays, so the delete has to.
    "an older put is in another segment": Rule(
        (put("a", 40), put("b", 400), large(1), delete("a"), large(2), large(3)),
        replace(DROP_ALL, dead_fraction_min=0.5),
        without(Tombstones, "strike", lambda *_: None),
    ),
    "an older put is in the same segment": Rule(
        (put("a"), delete("a"), large(1), large(2)),
        DROP_ALL,
        alone_whatever_the_rows,
    ),
    "a follower is behind": Rule(
        (put("b"), delete("a"), large(1), large(2)),
        replace(DROP_ALL, drop_deletes_upto=Seq(1)),
        add_without("drop_deletes_upto"),
    ),
    "it is too young": Rule(
        (put("b"), delete("a"), large(1), large(2)),
        replace(DROP_ALL, drop_deletes_before_us=NOW_US + 1),
        add_without("drop_deletes_before_us"),
    ),
    "a segment in front is set apart": Rule(
        (put("a"), large(1), delete("a"), large(2), large(3)),
        DROP_ALL,
        without(Tombstones, "strike_all", lambda *_: None),
        before=set_first_apart,
    ),
    "it is above `upto`": Rule(
        (put("b"), delete("a"), large(1), large(2)),
        replace(DROP_ALL, upto=Seq(1)),
        add_without("upto"),
    ),
}


def deletes_after(rule: Rule) -> list[str]:
    log = log_of(*rule.history)
    rule.before(log)
    log.compact(rule.policy)
    quarantined = [info.state == SegmentState.QUARANTINED for info in log.manifest.segments]
    first = log.manifest.segments[quarantined.count(True)].first
    return [record.key for record in log.records(first) if record.op == Op.DELETE]


@pytest.mark.parametrize("name", RULES)
def test_a_delete_stays_while(name: str) -> None:
    assert deletes_after(RULES[name]) == ["a"]


@pytest.mark.parametrize("name", RULES)
def test_the_rule_is_what_keeps_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    RULES[name].unless(monkeypatch)
    assert deletes_after(RULES[name]) == []


def test_a_damaged_segment_in_front_keeps_a_delete_as_a_quarantined_one_does() -> None:
    fs = MemoryFileSystem()
    with log_of(put("a"), large(1), delete("a"), large(2), large(3), fs=fs) as log:
        fs.flip(f"log/segments/{log.manifest.segments[0].id:08d}/data", 200)
        result = log.compact(DROP_ALL)
        assert (result.deletes_dropped, len(result.damaged)) == (0, 1)
        assert deletes_from(log, 3) == ["a"]


def deletes_from(log: Log, first: int) -> list[str]:
    return [record.key for record in log.records(first) if record.op == Op.DELETE]


def test_a_put_that_goes_in_the_same_pass_still_keeps_its_delete_for_one_more() -> None:
    """Swaps are separate: a crash after the one that drops the delete would revive the put."""
    history = [put("a"), large(1), delete("a"), large(2), large(3)]
    with log_of(*history) as log:
        first = log.compact(DROP_ALL)
        assert (first.records_dropped, first.deletes_dropped) == (1, 0)
        assert log.compact(DROP_ALL).deletes_dropped == 1


def test_a_delete_in_the_active_segment_stays() -> None:
    with log_of(large(1), delete("a"), config=replace(SMALL, segment_bytes_max=2000)) as log:
        log.compact(DROP_ALL)
        assert deletes(log) == ["a"]
        assert log.tombstone_floor == 0


def test_a_delete_stays_when_its_segment_is_not_rewritten_and_the_floor_too() -> None:
    with log_of(delete("a"), put("b", 300), large(1), large(2)) as log:
        result = log.compact(replace(DROP_ALL, dead_fraction_min=0.9))
        assert (deletes(log), log.tombstone_floor, result.deletes_dropped) == (["a"], 0, 0)


def test_the_newest_membership_entry_stays_and_no_ops_go() -> None:
    history: History = [(Op.MEMBERSHIP, "voters", b"1"), (Op.NOOP, "", b""), put("voters")]
    history += [(Op.MEMBERSHIP, "voters", b"2"), large(1), large(2)]
    with log_of(*history) as log:
        log.compact(DROP_ALL)
        kept = [(record.seq, record.op) for record in log.records()]
        assert kept[:2] == [(3, Op.PUT), (4, Op.MEMBERSHIP)]


def test_everything_above_upto_stays_whatever_it_is() -> None:
    history: History = [put("a"), put("a"), put("a"), (Op.NOOP, "", b""), large(1), large(2)]
    with log_of(*history) as log:
        log.compact(replace(EAGER, upto=Seq(2)))
        assert [record.seq for record in log.records()] == [3, 4, 5, 6]
