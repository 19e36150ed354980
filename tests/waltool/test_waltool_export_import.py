"""Records out to files of other programs and back in: equal records, or an error that says where."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirius.wal import Batch, Block, Durability, Log, LogConfig, Op, Record
from sirius.wal.block import ENTRY, assemble
from waltool.exporting import FORMATS, Parquet, writing
from waltool.importing import BadRow, Builder, parse, rows_of
from waltool.source import open_source

Waltool = Callable[..., Any]
CONFIG = LogConfig(durability=Durability.OS, background=False, reserve_bytes=0)


def contents(path: Path) -> list[Record]:
    with open_source(str(path)) as source:
        return [record for batch in source.batches() for record in batch.records()]


def batch_of(records: Sequence[Record]) -> Batch:
    entries = np.zeros(len(records), ENTRY)
    for name, field in (("seq", 0), ("ts", 1), ("op", 2), ("session", 5), ("serial", 6)):
        entries[name] = np.array([record[field] for record in records], ENTRY[name])
    keys, bodies = [r.key.encode() for r in records], [r.body for r in records]
    return Batch.of(assemble(1, max(records[-1].seq, 1), entries, keys, bodies))


def rebuilt(format_: str, stream: io.BytesIO) -> list[Record]:
    """Read a file back, as `waltool import` does."""
    builder = Builder(lambda: 0)
    blocks: list[Block] = []
    for _, fields in rows_of(format_, stream):
        blocks += builder.add(parse(fields))
    blocks += builder.finish()
    return [record for block in blocks for record in Batch.of(block).records()]


def written(format_: str, batches: Sequence[Batch]) -> io.BytesIO:
    stream = io.BytesIO()
    with writing(format_, stream) as writer:
        for batch in batches:
            writer.write(batch)
    return io.BytesIO(stream.getvalue())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
AWKWARD = st.sampled_from(
    ['"', "\r", "\n", "\r\n", "\0", ",", ";", " ", "\ufeff", "\u2028", "=1", "'"]
)
KEYS = st.one_of(TEXT, AWKWARD, st.lists(AWKWARD, max_size=4).map("".join))
U64, I64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    seq, found = 0, []
    for _ in range(draw(st.integers(1, 6))):
        seq += draw(st.integers(1, 5))
        op = draw(st.sampled_from(Op))
        key = draw(KEYS) or ("" if op > Op.DELETE else "key")
        body = b"" if op == Op.DELETE else draw(st.binary(max_size=20) | KEYS.map(str.encode))
        found.append(Record(seq, draw(I64), op, key, body, draw(U64), draw(U64)))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("format_", FORMATS)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(records=logs())
def test_any_record_comes_back_as_it_was(format_: str, records: list[Record]) -> None:
    assert rebuilt(format_, written(format_, [batch_of(records)])) == records


@pytest.mark.parametrize("format_", FORMATS)
def test_many_batches_and_bodies_that_are_long(format_: str) -> None:
    batches = []
    for number in range(40):
        body = b"x" * 200_000 if number % 10 == 0 else b"y"
        records = [
            Record(1 + number * 200 + n, n, Op.PUT, f"key-{n}", body)  # type: ignore[arg-type]
            for n in range(1 if number % 10 == 0 else 200)
        ]
        batches.append(batch_of(records))
    wanted = [record for batch in batches for record in batch.records()]
    assert rebuilt(format_, written(format_, batches)) == wanted


@pytest.mark.parametrize("log", ["films", "gaps", "strange", "empty", "old", "older"])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_log_comes_back_as_it_was(log: str, format_: str, corpus: Path, waltool: Waltool) -> None:
    assert waltool(f"export --control -o file.{format_} {log}").code == 0
    assert waltool(f"import file.{format_} copy").code == 0
    assert contents(corpus / "copy") == contents(corpus / log)
    assert waltool("verify --deep copy").out.endswith(": clean\n")
    assert waltool(f"export --control -o again.{format_} copy").code == 0
    assert (corpus / f"again.{format_}").read_bytes() == (corpus / f"file.{format_}").read_bytes()


class Pipe(io.TextIOWrapper):
    """Standard input, with bytes in it."""

    def __init__(self, data: bytes, *, seekable: bool = False) -> None:
        raw = io.BytesIO(data)
        raw.seekable = lambda: seekable  # type: ignore[method-assign]
        super().__init__(raw)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_pipe_will_do(
    format_: str, corpus: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waltool(f"export --control -o file.{format_} films").code == 0
    monkeypatch.setattr(sys, "stdin", Pipe((corpus / f"file.{format_}").read_bytes()))
    assert waltool(f"import --format {format_} - copy").code == 0
    assert contents(corpus / "copy") == contents(corpus / "films")


def test_a_pipe_is_taken_for_json_lines(
    corpus: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = waltool("export films").out
    monkeypatch.setattr(sys, "stdin", Pipe(lines.encode()))
    assert waltool("import - copy").code == 0
    updates = [record for record in contents(corpus / "films") if record.op <= Op.DELETE]
    assert contents(corpus / "copy") == updates


def test_the_parquet_file_has_the_columns_that_it_promises(corpus: Path, waltool: Waltool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert waltool("export -o films.parquet --control films").code == 0
    table = parquet.read_table("films.parquet")
    assert table.schema.names == ["seq", "time", "op", "key", "body", "session", "serial"]
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
    row = table.to_pylist()[8]
    assert (row["seq"], row["op"], row["body"], row["session"]) == (9, "put", b'{"year": 1960}', 7)


@pytest.mark.parametrize(("name", "value"), [("ROWS", 3), ("BYTES", 200)])
def test_rows_are_written_in_groups_and_not_all_kept_in_memory(
    name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(Parquet, name, value)
    records = [Record(n, 0, Op.PUT, "key", b"body") for n in range(1, 21)]  # type: ignore[arg-type]
    stream = written("parquet", [batch_of([record]) for record in records])
    assert parquet.ParquetFile(stream).num_row_groups > 3
    stream.seek(0)
    assert rebuilt("parquet", stream) == records


def test_without_pyarrow_the_extra_is_named(
    corpus: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    for line in ("export -o films.parquet films", "import --format parquet file.txt new"):
        result = waltool(line)
        assert (result.code, result.out) == (2, "")
        assert "pip install 'sirius-log[parquet]'" in result.err
    assert not list(corpus.glob("films.parquet*")) + list(corpus.glob("new*"))


# ---------------------------------------------------------------------- rows of others


def imported(here: Path, waltool: Waltool, name: str, text: str | bytes) -> Any:
    (here / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return waltool("import", name, "new")


def test_a_key_is_enough(here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_767_323_045_123_456_789)
    assert imported(here, waltool, "rows.jsonl", '{"key": "a"}\n\n{"key": "b"}\n').code == 0
    now = 1_767_323_045_123_456
    assert contents(here / "new") == [
        Record(1, now, Op.PUT, "a", b""),  # type: ignore[arg-type]
        Record(2, now, Op.PUT, "b", b""),  # type: ignore[arg-type]
    ]


def test_csv_with_columns_in_another_order_and_crlf(here: Path, waltool: Waltool) -> None:
    text = "body,key,time\r\nx,a,2026-01-02T03:04:05Z\r\n,b,2026-01-02T05:04:05+02:00\r\n"
    assert imported(here, waltool, "rows.csv", text).code == 0
    times = {record.ts_us for record in contents(here / "new")}
    assert times == {1_767_323_045_000_000}
    assert [record.body for record in contents(here / "new")] == [b"x", b""]


def test_parquet_with_times_of_another_unit_and_text_for_bytes(
    here: Path, waltool: Waltool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    times = pyarrow.array([1_767_323_045_123_456_789, None], pyarrow.timestamp("ns"))
    table = pyarrow.table({"key": ["a", "b"], "time": times, "body": ["x", None], "ts_us": [1, 2]})
    parquet.write_table(table, "rows.parquet")
    assert waltool("import rows.parquet new").code == 0
    first, second = contents(here / "new")
    assert (first.ts_us, first.body) == (1_767_323_045_123_456, b"x")
    assert second.body == b""


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("[]", "expected an object like"),
        ("{", "not JSON (Expecting property name enclosed in double quotes at column"),
        ("[" * 100_000, "not JSON"),
        ('{"key": "k", "seq": ' + "9" * 5_000 + "}", "not JSON"),
        (b'{"key": "\xff"}', "not UTF-8"),
        ("{}", "no key"),
        ('{"key": 1}', "key: expected text, not 1"),
        ('{"key": ""}', "the key is empty"),
        ('{"key": "\\ud800"}', "cannot be written as UTF-8"),
        ('{"key": "k", "kye": 1}', "unknown field 'kye'; expected seq, time"),
        (
            '{"key": "k", "op": "drop"}',
            "op: expected put, delete, noop, membership, session, not 'drop'",
        ),
        ('{"key": "k", "op": 1}', "op: expected put"),
        ('{"key": "k", "op": "delete", "body": "x"}', "a DELETE has no body"),
        ('{"key": "k", "body": 1}', "body: expected text, not int"),
        ('{"key": "k", "body": "\\ud800"}', "body: cannot be written as UTF-8"),
        ('{"key": "k", "body_base64": "eHh4 eHh4"}', "body_base64: expected base64"),
        ('{"key": "k", "body_base64": 1}', "body_base64: expected base64"),
        ('{"key": "k", "body": "", "body_base64": ""}', "body or body_base64, not both"),
        ('{"key": "k", "time": "noon"}', "time: expected 2026-11-16T07:00:00Z, not 'noon'"),
        ('{"key": "k", "time": "2h"}', "time: expected 2026-11-16T07:00:00Z, not '2h'"),
        ('{"key": "k", "ts_us": 1e3}', "ts_us: expected a whole number"),
        ('{"key": "k", "ts_us": 9223372036854775808}', "ts_us: expected a whole number"),
        ('{"key": "k", "session": -1}', "session: expected a whole number from 0 to"),
        ('{"key": "k", "serial": true}', "serial: expected a whole number"),
        ('{"key": "k", "seq": 1}', "seq: expected in all rows or in none"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_row_is_named_with_its_line_and_what_was_expected(
    row: str | bytes, expected: str, here: Path, waltool: Waltool
) -> None:
    raw = row if isinstance(row, bytes) else row.encode()
    text = b'{"key": "good"}\n\n' + raw + b'\n{"key": "good"}\n'
    result = imported(here, waltool, "rows.jsonl", text)
    lines = result.err.splitlines()
    assert (result.code, result.out, len(lines)) == (1, "", 2)
    assert lines[0].startswith("waltool: rows.jsonl: line 3: ")
    assert expected in lines[0]
    assert lines[1] == "waltool: rows.jsonl: 1 bad row; nothing was imported"
    assert not list(here.glob("new*"))


@pytest.mark.parametrize(("seqs", "line"), [((5, 5), 2), ((5, 4), 2), ((1, 9, 8), 3)])
def test_sequence_numbers_must_increase(
    seqs: tuple[int, ...], line: int, here: Path, waltool: Waltool
) -> None:
    text = "".join(json.dumps({"key": "k", "seq": seq}) + "\n" for seq in seqs)
    result = imported(here, waltool, "rows.jsonl", text)
    assert result.code == 1
    assert f"line {line}: seq: expected more than {max(seqs)}, not {seqs[-1]}" in result.err


def test_a_row_without_a_number_among_others(here: Path, waltool: Waltool) -> None:
    result = imported(here, waltool, "rows.jsonl", '{"key": "k", "seq": 3}\n{"key": "k"}\n')
    assert "line 2: seq: expected in all rows or in none" in result.err


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 0, ""),
        ("body\nx\n", 1, "with key among them"),
        ("key,key\na,b\n", 1, "expected a line of names"),
        ("key,colour\na,b\n", 1, "expected a line of names"),
        ('key,body\n"a\nb",x\nc\n', 4, "expected 2 fields, found 1"),
        ("key,seq\na,1\nb,two\n", 3, "seq: expected a whole number, not 'two'"),
        ("key\na\n\n,\n", 4, "expected 1 fields, found 2"),
        ('key\na\n"b', 3, "not CSV in UTF-8"),
        ('key,body\na,"b"c\n', 2, "not CSV in UTF-8"),
        (b"key\n\xff\n", 1, "not CSV in UTF-8"),
    ],
)
def test_a_bad_row_of_csv_is_named_with_its_line(
    text: str | bytes, line: int, expected: str, here: Path, waltool: Waltool
) -> None:
    result = imported(here, waltool, "rows.csv", text)
    if not line:
        assert (result.code, result.out) == (0, "new: 0 records\n")
        return
    assert result.code == 1
    assert f"rows.csv: line {line}: " in result.err
    assert expected in result.err
    assert not list(here.glob("new*"))


def test_a_bad_row_of_parquet_is_named_with_its_number(here: Path, waltool: Waltool) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"key": ["a", "b", ""]}), "rows.parquet")
    result = waltool("import rows.parquet new")
    assert result.code == 1
    assert "rows.parquet: row 3: the key is empty" in result.err


def test_no_more_than_ten_bad_rows_are_shown(here: Path, waltool: Waltool) -> None:
    result = imported(here, waltool, "rows.jsonl", "nonsense\n" * 50)
    lines = result.err.splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("10 bad rows or more; nothing was imported")


def test_a_bad_row_far_behind_undoes_what_was_written(here: Path, waltool: Waltool) -> None:
    good = json.dumps({"key": "k", "body": "x" * 1000}) + "\n"
    result = imported(here, waltool, "rows.jsonl", good * 5_000 + "nonsense\n")
    assert result.code == 1
    assert "line 5001" in result.err
    assert not list(here.glob("new*"))


def test_parsing_says_no_by_an_error_of_its_own() -> None:
    with pytest.raises(BadRow, match="no key"):
        parse({})


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("format_", FORMATS)
def test_a_full_disk_leaves_no_file(
    format_: str, corpus: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = waltool(f"export -o out.{format_} films")
    assert result.code == 1
    assert "No space left on device" in result.err
    assert not list(corpus.glob("out*"))


@pytest.mark.parametrize("format_", FORMATS)
def test_ctrl_c_leaves_no_file(
    format_: str, corpus: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("waltool.progress.Progress.at", interrupted)
    result = waltool(f"export -o out.{format_} films")
    assert (result.code, result.err) == (130, "waltool: interrupted\n")
    assert not list(corpus.glob("out*"))


def test_a_reader_that_has_enough_ends_the_export_quietly(here: Path) -> None:
    with Log.open(here / "large", CONFIG) as log:
        for _ in range(50):
            log.put("key", b"x" * 20_000)
    command = [sys.executable, "-m", "waltool", "export", str(here / "large")]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
