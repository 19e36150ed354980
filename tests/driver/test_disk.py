"""A node's folder: log and journal are opened together and closed together."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sirius.driver.disk import Disk
from sirius.errors import LogClosed, LogFailed, LogLocked, SiriusError
from sirius.types import Ballot, NodeId
from sirius.wal import Durability, LogConfig

CONFIG = LogConfig(reserve_bytes=0)


def ballot(number: int) -> Ballot:
    return Ballot(number, NodeId(7))


@pytest.mark.parametrize("durability", list(Durability))
def test_both_are_made_and_found_again(tmp_path: Path, durability: Durability) -> None:
    config = LogConfig(reserve_bytes=0, durability=durability)
    disk = Disk.open(tmp_path / "d", config)
    disk.log.put("k", b"v")
    disk.journal.promise(ballot(3))
    disk.close()
    again = Disk.open(tmp_path / "d", config)
    assert again.log.record(1) is not None
    assert again.journal.promised == ballot(3)
    assert again.failure is None
    again.close()


def test_a_folder_that_is_open_is_not_opened_again(tmp_path: Path) -> None:
    disk = Disk.open(tmp_path, CONFIG)
    with pytest.raises(LogLocked):
        Disk.open(tmp_path, CONFIG)
    disk.close()
    Disk.open(tmp_path, CONFIG).close()


def test_a_journal_that_does_not_open_leaves_the_log_unlocked(tmp_path: Path) -> None:
    Disk.open(tmp_path, CONFIG).close()
    shutil.rmtree(tmp_path / "journal")
    (tmp_path / "journal").write_bytes(b"no folder")
    for _ in range(2):
        with pytest.raises((SiriusError, OSError)) as caught:
            Disk.open(tmp_path, CONFIG)
        assert not isinstance(caught.value, LogLocked)


def test_a_journal_of_another_log_is_not_believed(tmp_path: Path) -> None:
    """A vote that somebody else's disk has cast is none of this node's."""
    for name in ("one", "two"):
        disk = Disk.open(tmp_path / name, CONFIG)
        disk.journal.promise(ballot(9))
        disk.close()
    shutil.rmtree(tmp_path / "one" / "journal")
    shutil.copytree(tmp_path / "two" / "journal", tmp_path / "one" / "journal")
    disk = Disk.open(tmp_path / "one", CONFIG)
    assert disk.journal.promised != ballot(9)
    disk.close()


def test_what_fails_first_is_the_failure(tmp_path: Path) -> None:
    disk = Disk.open(tmp_path, CONFIG)
    disk.log._commits.fail(LogFailed("the log is broken"))
    assert str(disk.failure) == "the log is broken"
    disk.close()


def test_both_are_closed_whatever_the_first_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk.open(tmp_path, CONFIG)
    close = disk.log.close

    def journal_fails() -> None:
        raise LogFailed("the journal")

    def log_fails() -> None:
        close()
        raise LogFailed("the log")

    monkeypatch.setattr(disk.journal, "close", journal_fails)
    monkeypatch.setattr(disk.log, "close", log_fails)
    with pytest.raises(LogFailed, match="the journal"):
        disk.close()
    with pytest.raises(LogClosed):
        disk.log.put("k", b"v")
    monkeypatch.undo()
    disk.close()
    Disk.open(tmp_path, CONFIG).close()
