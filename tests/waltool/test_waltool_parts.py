"""The parts of waltool that commands are made of, each against something simpler."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.errors import UsageError
from sirius.wal import Batch, Block, Durability, Log, LogConfig, LogReader, Op, Update, encode
from sirius.wal.block import ENTRY, assemble
from waltool import params
from waltool.commands.tail import last_batches
from waltool.filters import Filter
from waltool.matching import Matcher
from waltool.source import AncestorSource, SiriusSource, is_live, open_source
from waltool.tally import Histogram
from waltool.target import Copier, new_log
from waltool.text import escape, iso, plural, printable, shorten, size, width

HOUR_US = 3_600_000_000


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tline\nreturn\r", r"tab\tline\nreturn\r"),
        ("\x00\x1b[31m\x7f\x9b", r"\x00\x1b[31m\x7f\x9b"),
        ("\u202e\u200b\u2028", r"\u202e\u200b\u2028"),
        ("\U000e0001", r"\U000e0001"),
        ("back\\slash", "back\\slash"),
        ("naïve 東京 😊", "naïve 東京 😊"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text())
def test_what_is_escaped_is_printable(text: str) -> None:
    assert escape(text).isprintable()


@given(st.binary(max_size=60), st.integers(1, 20))
def test_a_body_is_printable_and_fits(body: bytes, columns: int) -> None:
    assert printable(body).isprintable()
    cut = printable(body, columns)
    assert width(cut) <= columns
    if cut == printable(body):
        assert "…" not in cut.removesuffix("…")
    else:
        assert cut.endswith("…")


@given(st.text(max_size=40), st.integers(1, 12))
def test_a_text_that_is_cut_begins_like_the_whole(text: str, columns: int) -> None:
    cut, whole = printable(text.encode(), columns), escape(text)
    assert cut == whole or whole.startswith(cut.removesuffix("…"))


def test_a_character_that_is_cut_through_is_not_taken_for_binary() -> None:
    assert printable(b"abc" + "é".encode() * 20, 2) == "a…"
    assert printable("東".encode() * 50, 8) == "東東東…"


def test_binary_is_shown_byte_by_byte() -> None:
    assert printable(b"it's \"\\\xff\x00\n") == "it's \"\\\\xff\\x00\\n"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


def test_small_things() -> None:
    assert plural(1, "record") == "1 record"
    assert plural(1200, "record") == "1,200 records"
    assert shorten("abc", 3) == "abc"
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(-1, "microseconds") == "1969-12-31T23:59:59.999999Z"
    assert iso(1 << 62) == f"@{1 << 62}us"


# ---------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("text", "ts_us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.000001", 1_000_001),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00:02Z", 2_000_000),
        ("30m", (10_000_000 - 1800) * 1_000_000),
        ("2h", (10_000_000 - 7200) * 1_000_000),
        ("7d", (10_000_000 - 604_800) * 1_000_000),
        ("1.5w", (10_000_000 - 907_200) * 1_000_000),
        ("0s", 10_000_000_000_000),
    ],
)
def test_moments(text: str, ts_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltool.params.time.time", lambda: 10_000_000.0)
    assert params.moment(text) == ts_us


# ---------------------------------------------------------------------- matching

WORDS = st.text("ab", max_size=3)


@given(st.lists(WORDS, min_size=1, max_size=12), st.text("ab", min_size=1, max_size=3))
def test_a_word_is_found_where_search_finds_it(keys: list[str], word: str) -> None:
    updates = [Update(Op.NOOP, key.encode(), key.encode()) for key in keys]
    batch = Batch.of(encode(1, updates, 0))
    expected = [word in key for key in keys]
    for every in (np.ones(len(keys), np.bool_), np.arange(len(keys)) % 2 == 0):
        picked = batch.where(every)
        wanted = [hit for hit, kept in zip(expected, every.tolist(), strict=True) if kept]
        text, octets = Matcher.of_text(re.compile(word)), Matcher.of_bytes(re.compile(word))
        assert text.words == octets.words == [word.encode()]
        assert text.mask(picked.key_column).tolist() == wanted
        assert octets.mask(picked.body_column).tolist() == wanted


EXPRESSIONS = {
    "^a": [b"", b"a"],
    "a$": [b"a", b""],
    "a.b": [b"a", b"b"],
    "^.*ac.?b.+": [b"", b"", b"ac", b"b", b""],
    "c..*?b": [b"c", b"", b"b"],
    "(?i)A": [],
    "": [b""],
    "é|a": [],
    "a?b": [],
    "ac*b": [],
    "a{2}": [],
    "[a]b": [],
    r"\x61": [],
    "(ba)": [],
}


@pytest.mark.parametrize(("pattern", "words"), EXPRESSIONS.items())
def test_an_expression_is_tried_where_its_words_are(pattern: str, words: list[bytes]) -> None:
    keys = ["a", "ba", "acb", "é", "xyz", "", "aac", "ac\nb", "b", "acab.", "c-b"]
    batch = Batch.of(encode(1, [Update(Op.NOOP, key.encode()) for key in keys], 0))
    compiled = re.compile(pattern)
    matcher = Matcher.of_text(compiled)
    assert matcher.words == words
    found = [bool(compiled.search(key)) for key in keys]
    assert matcher.mask(batch.key_column).tolist() == found
    picked = batch.where(np.arange(len(keys)) % 2 == 0)
    assert matcher.mask(picked.key_column).tolist() == found[::2]


# ---------------------------------------------------------------------- filters and tail


def mixed_block(first: int, n: int) -> Block:
    """Make a block of 1 to 5 records whose times go forth and back."""
    entries = np.zeros(1 + n % 5, ENTRY)
    rows = np.arange(len(entries))
    entries["op"] = 1 + rows % 3
    entries["seq"] = first + rows
    entries["ts"] = (n * 7 + rows * 3) % 50 * HOUR_US
    keys = [b"k%d" % (n % 7)] * len(entries)
    return assemble(first, first + len(entries) - 1, entries, keys, [b""] * len(entries))


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """A log of 300 records in small blocks, with holes."""
    config = LogConfig(durability=Durability.OS, segment_records_max=40, reserve_bytes=0)
    with Log.open(tmp_path / "long", config) as log:
        for n in range(100):
            if n % 10 == 3:
                log.append(Block.hole(log.next_seq, log.next_seq + n))
            log.append(mixed_block(log.next_seq, n))
    return tmp_path / "long"


FILTERS = [
    Filter(),
    Filter(control=True),
    Filter(ops=("delete", "noop")),
    Filter(ops=("delete",), control=True),
    Filter(first=17, last=333),
    Filter(since_us=20 * HOUR_US),
    Filter(until_us=5 * HOUR_US),
    Filter(since_us=48 * HOUR_US, until_us=49 * HOUR_US, control=True),
    Filter(since_us=60 * HOUR_US),
    Filter(key=Matcher.of_text(re.compile("k[35]"))),
    Filter(key=Matcher.of_text(re.compile("k3")), ops=("put",), first=100, since_us=HOUR_US),
    Filter(first=10_000),
]
NAMES = {"put": 1, "delete": 2, "noop": 3, "membership": 4}


def brute_force(log: Path, wanted: Filter) -> list[int]:
    with LogReader.open(str(log)) as reader:
        records = list(reader.snapshot().records())
    return [
        r.seq
        for r in records
        if (wanted.first or 1) <= r.seq <= (wanted.last or 1 << 60)
        and (wanted.since_us is None or r.ts_us >= wanted.since_us)
        and (wanted.until_us is None or r.ts_us < wanted.until_us)
        and (r.op in [NAMES[op] for op in wanted.ops] if wanted.ops else wanted.control or r.op < 3)
        and (wanted.key is None or (wanted.key.text is not None and wanted.key.text.search(r.key)))
    ]


def seqs(batches: Any) -> list[int]:
    return [seq for batch in batches for seq in batch.seq.tolist()]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_a_filter_keeps_what_a_loop_keeps(wanted: Filter, long_log: Path) -> None:
    expected = brute_force(long_log, wanted)
    with open_source(str(long_log)) as source:
        assert seqs(wanted.batches(source)) == expected
        for count in (0, 1, 3, 20, 1000):
            assert (
                seqs(last_batches(source, wanted, count))
                == expected[len(expected) - min(count, len(expected)) :]
            )


def test_times_narrow_what_is_read(long_log: Path) -> None:
    with open_source(str(long_log)) as source:
        first, last = source.time_bounds(60 * HOUR_US, None)
        assert first > last
        first, last = Filter(since_us=49 * HOUR_US).bounds(source)
        assert 1 < first <= last


def test_tail_reads_the_end_only(long_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int | None]] = []
    real = SiriusSource.batches

    def spy(source: SiriusSource, first: int = 1, last: int | None = None) -> Any:
        asked.append((first, last))
        return real(source, first, last)

    monkeypatch.setattr(SiriusSource, "batches", spy)
    with open_source(str(long_log)) as source:
        end = source.last
        last_batches(source, Filter(control=True), 5)
        assert asked == [(end - 4, end)]
        asked.clear()
        last_batches(source, Filter(ops=("membership",)), 5)
    assert asked[:2] == [(end - 4, end), (end - 24, end - 5)]
    assert all(a[0] == (b[1] or 0) + 1 for a, b in pairwise(asked)), "no record is read twice"
    assert asked[-1][0] == 1


def test_first_behind_last_is_refused() -> None:
    with pytest.raises(UsageError, match="--first 5 is behind --last 4"):
        Filter(first=5, last=4)


# ---------------------------------------------------------------------- sources


def test_batches_of_the_ancestor_cover_everything(corpus: Path) -> None:
    for name in ("old", "older"):
        with open_source(name) as source:
            assert isinstance(source, AncestorSource)
            whole = list(source.batches())
            assert (whole[0].first, whole[-1].last, source.last) == (1, 6, 6)
            assert all(b.first == a.last + 1 for a, b in pairwise(whole))
            assert seqs(source.batches(2, 5)) == [2, 5]
            assert seqs(source.batches(3, 4)) == []


def test_whether_a_log_is_live(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with Log.open(path, LogConfig(reserve_bytes=0)):
        assert is_live(path)
        assert is_live(path), "looking does not take the lock away"
    assert not is_live(path)
    (tmp_path / "log" / "LOCK").unlink()
    assert not is_live(path)


# ---------------------------------------------------------------------- counting


@given(st.lists(st.lists(st.integers(0, 1 << 40), max_size=20), min_size=1, max_size=5))
def test_a_histogram_knows_what_sorting_knows(parts: list[list[int]]) -> None:
    histogram = Histogram()
    for part in parts:
        histogram.add(np.array(part, np.int64))
    values = sorted(value for part in parts for value in part)
    summary = histogram.summary()
    if not values:
        assert set(summary.values()) == {None}
        return
    assert (summary["min"], summary["max"]) == (values[0], values[-1])
    assert summary["mean"] == round(sum(values) / len(values), 1)
    for percent in (50, 90, 99):
        assert summary[f"p{percent}"] == values[-(-len(values) * percent // 100) - 1]


# ---------------------------------------------------------------------- new logs


def test_a_new_log_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with pytest.raises(ZeroDivisionError), new_log(str(target)) as log:
        log.put("key", bytes([1 // (log.next_seq - 1)]))
    assert list(tmp_path.iterdir()) == []
    with new_log(f"{target}/") as log:
        copier = Copier(log)
        copier.add(Batch.of(encode(5, [Update(Op.PUT, b"key", b"body")], 9)))
        copier.finish(8)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    with LogReader.open(str(target)) as reader:
        assert reader.last == 8
        assert [r.seq for r in reader.snapshot().records()] == [5]


@pytest.mark.parametrize("name", ["new", "new.writing"])
def test_a_new_log_takes_no_place_that_is_taken(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with (
        pytest.raises(UsageError, match=f"{name} is there already"),
        new_log(str(tmp_path / "new")),
    ):
        pass
    assert (tmp_path / name).exists()
