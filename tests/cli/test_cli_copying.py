"""`sirius snapshot` and `sirius bootstrap`."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sirius.app.storage import Storage
from sirius.cli import copying
from sirius.config import LogSettings, SiriusConfig
from sirius.errors import CorruptLog, UsageError
from sirius.node import Sirius
from sirius.wal import CompactionPolicy, Log, LogConfig, LogReader, state_digest
from sirius.wal.manifest import Manifest
from sirius.wal.store import Store
from tests.cli.processes import Process

CONFIG = LogConfig(segment_records_max=50, reserve_bytes=0, retire_after_s=0)


def build(path: Path, count: int = 220) -> str:
    """Make a log of several segments; return the digest of its state."""
    with Log.open(path, CONFIG) as log:
        for number in range(count):
            log.put(f"key/{number % 30}", b"%d" % number)
        log.flush()
        return state_digest(log.snapshot()).hex


def digest_of(path: Path) -> str:
    with LogReader.open(str(path)) as reader:
        return state_digest(reader.snapshot()).hex


def quiet(_what: str, _done: int, _total: int) -> None: ...


def copy(source: Path, target: Path) -> copying.Copied:
    return copying.copy_log(str(source), str(target), quiet, lambda _: None)


def test_a_copy_has_what_the_log_has(tmp_path: Path, sirius: Callable[..., Any]) -> None:
    digest = build(tmp_path / "films")
    result = sirius("snapshot", "--json", tmp_path / "films", tmp_path / "copy")
    assert result.code == 0
    told = json.loads(result.out)
    assert (told["last"], told["records"]) == (220, 220)
    assert told["segments"] == 5
    assert digest_of(tmp_path / "copy") == digest


def test_people_are_told_in_a_line(tmp_path: Path, sirius: Callable[..., Any]) -> None:
    build(tmp_path / "films")
    result = sirius("snapshot", tmp_path / "films", tmp_path / "copy", terminal=True)
    assert f"{tmp_path}/copy: everything up to 220, 5 segments, 220 records, " in result.out


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Sirius]:
    """A node that is being written to, with compaction going on."""
    settings = LogSettings(segment_records_max=500, retire_after_s=60.0)
    config = SiriusConfig(data=tmp_path / "live", durability="os", log=settings)
    stop = threading.Event()

    def write() -> None:
        for number in range(10**9):
            if stop.is_set():
                return
            node.enqueue_put(f"key/{number % 300}", b"%d" % number).result(30)
            if number % 1000 == 999:
                node.compact()

    with Sirius(Storage(), config) as node:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield node
        finally:
            stop.set()
            writer.join()


def test_a_live_log_can_be_copied_again_and_again(running: Sirius, tmp_path: Path) -> None:
    last = 0
    for number in range(8):
        before = running.enqueue_put("before", b"%d" % number).result(30).seq
        copied = copy(tmp_path / "live", tmp_path / f"copy-{number}")
        assert before is not None
        assert copied.last >= before > last
        last = before
        with LogReader.open(str(tmp_path / f"copy-{number}")) as reader:
            found = [record for record in reader.snapshot().records() if record.key == "before"]
        assert found[-1].body == b"%d" % number


def test_votes_are_never_copied(running: Sirius, tmp_path: Path) -> None:
    copy(tmp_path / "live", tmp_path / "copy")
    assert (tmp_path / "live" / "journal").is_dir()
    assert sorted(os.listdir(tmp_path / "copy")) == ["manifests", "segments"]


def test_a_copy_knows_that_it_is_one_even_in_the_place_of_the_log(tmp_path: Path) -> None:
    build(tmp_path / "films")
    copy(tmp_path / "films", tmp_path / "copy")
    with LogReader.open(str(tmp_path / "films")) as reader:
        uid = reader.manifest.uid
    for part in ("manifests", "segments"):
        # The folder and the lock stay what they are, so that their inodes tell nothing.
        shutil.rmtree(tmp_path / "films" / part)
        (tmp_path / "copy" / part).rename(tmp_path / "films" / part)
    with Log.open(tmp_path / "films", CONFIG) as log:
        assert log.manifest.uid != uid


def test_a_segment_that_goes_meanwhile_begins_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = build(tmp_path / "films")
    real, attempts = copying._copy_folder, []

    def copy_folder(source: str, target: str, copied: Callable[[int], None]) -> None:
        attempts.append(source)
        if len(attempts) == 3:
            with Log.open(tmp_path / "films", CONFIG) as log:
                log.compact(CompactionPolicy(dead_fraction_min=0.0))
                log.retire(at_once=True)
            raise FileNotFoundError(source)
        real(source, target, copied)

    monkeypatch.setattr(copying, "_copy_folder", copy_folder)
    copied = copy(tmp_path / "films", tmp_path / "copy")
    assert len(attempts) > 3
    assert digest_of(tmp_path / "copy") == digest
    with LogReader.open(str(tmp_path / "copy")) as reader:
        named = {info.name for info in reader.manifest.segments}
    assert set(os.listdir(tmp_path / "copy" / "segments")) == named
    assert copied.last == 220


def test_a_log_that_changes_too_fast_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "films")

    def gone(_store: Store, _manifest: Manifest, _building: str, _progress: Any) -> None:
        raise FileNotFoundError("segment")

    monkeypatch.setattr(copying, "_copy_segments", gone)
    with pytest.raises(CorruptLog, match="faster than they can be copied"):
        copy(tmp_path / "films", tmp_path / "copy")
    assert os.listdir(tmp_path) == ["films"]


def test_damage_is_found_and_nothing_is_left(tmp_path: Path, sirius: Callable[..., Any]) -> None:
    build(tmp_path / "films")
    path = tmp_path / "films" / "segments" / "00000002" / "data"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    result = sirius("snapshot", tmp_path / "films", tmp_path / "copy")
    assert result.code == 1
    assert "segments/00000002/data" in result.err
    assert len(result.err.splitlines()) == 1
    assert os.listdir(tmp_path) == ["films"]


@pytest.mark.parametrize("name", ["copy", "copy.writing"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    build(tmp_path / "films")
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").write_text("mine")
    with pytest.raises(UsageError, match=f"{name} is there already"):
        copy(tmp_path / "films", tmp_path / "copy")
    assert (tmp_path / name / "precious").read_text() == "mine"


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path) -> None:
    build(tmp_path / "films")
    (tmp_path / "copy").mkdir()
    assert copy(tmp_path / "films", tmp_path / "copy").last == 220


def test_an_active_segment_that_was_caught_half_written_is_cut(tmp_path: Path) -> None:
    digest = build(tmp_path / "films")
    with LogReader.open(str(tmp_path / "films")) as reader:
        active = reader.manifest.active
    with open(tmp_path / "films" / "segments" / active.name / "data", "ab") as file:
        file.write(b"half a block")
    copied = copying.copy_log(
        str(tmp_path / "films"),
        str(tmp_path / "copy"),
        quiet,
        lambda folder: Log.open(folder, CONFIG).close(),
    )
    assert copied.last == 220
    assert digest_of(tmp_path / "copy") == digest


# ---------------------------------------------------------------------- bootstrap


def test_bootstrap_says_what_to_do_next_and_nothing_else(tmp_path: Path) -> None:
    build(tmp_path / "films")
    with Process("bootstrap", str(tmp_path / "films"), str(tmp_path / "new")) as process:
        code, out, err = process.end()
    assert code == 0
    assert out.startswith(f"{tmp_path}/new: everything up to 220, ")
    assert err.startswith("sirius: start it with its own name")
    assert len(err.splitlines()) == 1


def test_a_new_node_has_the_log_and_no_vote(tmp_path: Path, sirius: Callable[..., Any]) -> None:
    config = SiriusConfig(data=tmp_path / "one", durability="os")
    with Sirius(Storage(), config) as node:
        node.enqueue_put("k", b"v").result(30)
        before = node.status()
        result = sirius("bootstrap", tmp_path / "one", tmp_path / "two")
    assert result.code == 0
    assert "it follows, and votes once the members name it" in result.err
    shutil.rmtree(tmp_path / "one")
    storage = Storage()
    copied = Sirius(storage, SiriusConfig(data=tmp_path / "two", durability="os"))
    try:
        assert copied.wait_for(before.applied, 30)
        status = copied.status()
        assert storage.values == {"k": b"v"}
        assert status.cluster == before.cluster
        assert status.node_id != before.node_id
        assert status.role == "follower"
    finally:
        copied.close()
