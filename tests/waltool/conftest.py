"""Logs to look at, made the same every time, and a way to run a command line in this process.

The logs of `corpus`:

films      two segments: puts, deletes, control entries, an hour from write to write
gaps       films, with holes, as compaction leaves them
empty      nothing yet
strange    keys and bodies that are not English, not printable, or not text
damaged    films with a flipped byte in its first, sealed segment
torn       films with half a block at its end
rotten     films with a flipped byte in its second, active segment, in front of a synced mark and without an index
apart      films with its first segment quarantined
headless   films without its newest manifest
voter      films with a damaged journal
old, older the logs of the Scala Sirius, segmented and legacy
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sirius.types import SegmentId
from sirius.wal import Durability, Log, LogConfig, LogReader, Op, OsFileSystem, Update, encode
from sirius.wal.ancestor import AncestorColumns, AncestorWriter
from sirius.wal.batch import Batch
from sirius.wal.journal import Journal
from waltool.cli import run as run_waltool

START_US = 1_767_323_045_000_000
"""2026-01-02T03:04:05Z"""
HOUR_US = 3_600_000_000
CONFIG = LogConfig(
    durability=Durability.OS, background=False, segment_records_max=5, reserve_bytes=0
)

FILMS: Sequence[Sequence[Update]] = (
    [Update(Op.PUT, b"title/casablanca", b'{"year": 1942}')],
    [Update(Op.PUT, b"title/vertigo", b'{"year": 1958}')],
    [Update(Op.PUT, b"person/bogart", b'{"name": "Humphrey Bogart"}')],
    [Update(Op.PUT, b"title/casablanca", b'{"year": 1943, "rating": 8.5}')],
    [Update(Op.DELETE, b"title/vertigo")],
    [Update(Op.NOOP, b"")],
    [Update(Op.MEMBERSHIP, b"", b"node-1 node-2 node-3")],
    [Update(Op.PUT, b"untitled", b"no separator in this one")],
    [
        Update(Op.PUT, b"title/psycho", b'{"year": 1960}', session=7, serial=1),
        Update(Op.PUT, b"title/rope", b'{"year": 1948}', session=7, serial=2),
    ],
)

STRANGE: Sequence[Sequence[Update]] = (
    [
        Update(
            Op.PUT,
            "título/el-ángel".encode(),
            "película \N{SMILING FACE WITH SMILING EYES}".encode(),
        )
    ],
    [Update(Op.PUT, "映画/東京物語".encode(), ("小津安二郎" * 12).encode())],
    [Update(Op.PUT, b"bell\x07/escape\x1b[31m", b"line one\nline two\ttab\x1b]0;title\x07")],
    [Update(Op.PUT, "bidi/\u202edetrevni".encode(), "\u200b zero width".encode())],
    [Update(Op.PUT, b"binary", bytes(range(0, 256, 5)))],
    [Update(Op.PUT, b"empty", b"")],
    [Update(Op.PUT, b"long", b"x" * 500)],
)


@dataclass
class Clock:
    """Gives the time, and moves it on by an hour each time it is asked."""

    now_us: int = START_US

    def __call__(self) -> int:
        self.now_us += HOUR_US
        return self.now_us - HOUR_US


def build(path: Path, blocks: Sequence[Sequence[Update]], config: LogConfig = CONFIG) -> None:
    """Make a log with a segment for every five records."""
    clock = Clock(START_US - HOUR_US)  # a segment's file header takes the first time
    with Log.open(path, config, now_us=clock) as log:
        for updates in blocks:
            log.write(updates)


def build_gaps(source: Path, target: Path) -> None:
    with LogReader.open(str(source)) as films, Log.open(target, CONFIG) as log:
        for batch in films.snapshot().batches():
            keep = np.isin(batch.seq, [3, 4, 5, 9, 10])
            log.append(batch.where(keep).block())
        log.append(Batch.hole(log.next_seq, log.next_seq + 2).block())


def build_ancestor(path: Path, layout: str) -> None:
    columns = AncestorColumns(
        seq=np.array([1, 2, 5, 6]),
        ts_ms=START_US // 1000 + np.array([0, 1, 2, 3]) * 3_600_000,
        op=np.array([1, 1, 2, 1], np.uint8),
        keys=[b"title/casablanca", b"title/vertigo", b"title/vertigo", b"person/bogart"],
        bodies=[b'{"year": 1942}', b'{"year": 1958}', b"", b'{"name": "Humphrey Bogart"}'],
    )
    size = {"events_per_segment": 3} if layout == "segmented" else {}
    writer = AncestorWriter(OsFileSystem(), str(path), layout=layout, **size)  # type: ignore[arg-type]
    with writer:
        writer.append(columns)


def build_voter(path: Path) -> None:
    build(path, FILMS)
    with LogReader.open(str(path)) as films:
        uid = films.manifest.uid
    with Journal.open(path / "journal", uid=uid, background=False) as journal:
        for round in (1, 2):
            journal.note(b"name", b"node-%d" % round)
            journal.sync()
    flip(path / "journal" / "journal", b"node-1")


def flip(path: Path, word: bytes) -> None:
    """Change one byte of a file: the first of the first such word in it."""
    data = bytearray(path.read_bytes())
    data[data.index(word)] ^= 0x40
    path.write_bytes(data)


def data_of(log: Path, segment: int) -> Path:
    return log / "segments" / f"{segment:08d}" / "data"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all the logs; the current folder, too, so that paths in output are short."""
    build(tmp_path / "films", FILMS)
    build(tmp_path / "empty", ())
    build(tmp_path / "strange", STRANGE)
    build(tmp_path / "damaged", FILMS)
    build(tmp_path / "torn", FILMS)
    build(tmp_path / "rotten", FILMS)
    build(tmp_path / "apart", FILMS)
    build(tmp_path / "headless", FILMS)
    build_voter(tmp_path / "voter")
    build_gaps(tmp_path / "films", tmp_path / "gaps")
    build_ancestor(tmp_path / "old", "segmented")
    build_ancestor(tmp_path / "older", "legacy")
    flip(data_of(tmp_path / "damaged", 1), b"Humphrey")
    flip(data_of(tmp_path / "rotten", 2), b"psycho")
    (tmp_path / "headless" / "manifests" / "0000000002").unlink()
    (data_of(tmp_path / "rotten", 2).parent / "index").write_bytes(b"")
    with Log.open(tmp_path / "apart", CONFIG) as log:
        log.quarantine(SegmentId(1), "moths")
    with data_of(tmp_path / "torn", 2).open("ab") as file:
        file.write(encode(11, [Update(Op.PUT, b"title/torn", b"half")], START_US).raw[:100])
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("not a log")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Result:
    """What a command line wrote and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Stream(io.TextIOWrapper):
    """A stream that may pretend to be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()


@contextmanager
def streams(terminal: bool) -> Iterator[tuple[Stream, Stream]]:
    before = sys.stdout, sys.stderr
    replaced = Stream(terminal), Stream(terminal)
    sys.stdout, sys.stderr = replaced
    try:
        yield replaced
    finally:
        sys.stdout, sys.stderr = before


Waltool = Callable[..., Result]


@pytest.fixture
def waltool(monkeypatch: pytest.MonkeyPatch) -> Waltool:
    """Run a command line: `waltool("head -n 3 films")` or `waltool("head", path)`."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("waltool.timing.clock", lambda: 0.0)

    def call(*words: str | os.PathLike[str], terminal: bool = False) -> Result:
        line = (
            shlex.split(str(words[0])) if len(words) == 1 else [os.fspath(word) for word in words]
        )
        with streams(terminal) as (out, err):
            code = run_waltool(line)
        return Result(code, out.text(), err.text())

    return call


@pytest.fixture
def build_log() -> Callable[..., None]:
    """Make a log of blocks of updates: `build_log(path, blocks, config)`."""
    return build
