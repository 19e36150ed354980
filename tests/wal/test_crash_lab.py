"""The laboratory of `test_crash_states` finds faults: each one here is put in, and has to be seen.

A checker that finds nothing wrong with a log that leaves out a sync checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

from sirius.testing import MemoryFileSystem
from sirius.wal import Durability, Log, LogConfig
from sirius.wal import store as store_module
from sirius.wal.frames import FrameWriter, Mode
from sirius.wal.fs import FileSystem, remove_tree
from sirius.wal.manifest import Manifest
from sirius.wal.store import Store
from tests.wal.bookkeeping import SMALL, mode
from tests.wal.crashlab import Lab, steady

TINY: Final = replace(SMALL, segment_bytes_max=400)
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    with steady():
        yield


def left_out(owner: object, name: str) -> Break:
    """Make a method do nothing."""
    return lambda patch: patch.setattr(owner, name, lambda *_args, **_kwargs: None)


def names_not_synced(part: str) -> Break:
    """Leave out the syncs of folders whose path ends so."""
    real = MemoryFileSystem.sync_dir

    def sync_dir(self: MemoryFileSystem, path: str) -> None:
        if not path.endswith(part):
            real(self, path)

    return lambda patch: patch.setattr(MemoryFileSystem, "sync_dir", sync_dir)


def whole_files_not_synced(patch: pytest.MonkeyPatch) -> None:
    def write_whole(fs: FileSystem, path: str, data: bytes) -> None:
        remove_tree(fs, path)
        file = fs.open(path, "x")
        file.append([data])
        file.close()

    patch.setattr(store_module, "write_whole", write_whole)


def unlinked_before_committed(patch: pytest.MonkeyPatch) -> None:
    real = Store.commit

    def commit(self: Store, manifest: Manifest) -> None:
        kept = {info.name for info in manifest.segments}
        for name in self.fs.listdir(f"{self.root}/segments"):
            if name not in kept:
                remove_tree(self.fs, f"{self.root}/segments/{name}")
        real(self, manifest)

    patch.setattr(Store, "commit", commit)


def acknowledged_before_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "flush", lambda self, timeout_s=None: self.durable_seq)


def marked_before_synced(patch: pytest.MonkeyPatch) -> None:
    real = FrameWriter.sync

    def sync(self: FrameWriter) -> None:
        self.mark(Mode.FSYNC)
        real(self)

    patch.setattr(FrameWriter, "sync", sync)


def tail_believed_without_syncing(patch: pytest.MonkeyPatch) -> None:
    def go_on_after(self: FrameWriter, walk: object, mode: Mode) -> None:
        self.size = self._file.size()

    patch.setattr(FrameWriter, "go_on_after", go_on_after)


@dataclass(frozen=True)
class Fault:
    break_it: Break
    crash: Callable[[Lab, str, LogConfig], None]
    workload: str
    config: LogConfig = SMALL


FAULTS: Final = {
    "data is not synced": Fault(left_out(FrameWriter, "sync"), Lab.power_loss, "aa"),
    "a flush does not wait": Fault(acknowledged_before_synced, Lab.power_loss, "ax"),
    "a mark comes before its sync": Fault(marked_before_synced, Lab.power_loss, "aa"),
    "a manifest is not synced": Fault(whole_files_not_synced, Lab.power_loss, "ar"),
    "the names of manifests are not synced": Fault(
        names_not_synced("/manifests"), Lab.power_loss, "rr"
    ),
    "the names of segments are not synced": Fault(
        names_not_synced("/segments"), Lab.power_loss, "rr"
    ),
    "the names in a new segment are not synced": Fault(
        names_not_synced("/00000002"), Lab.power_loss, "rr"
    ),
    "the names in a rewritten segment are not synced": Fault(
        names_not_synced(".tmp"), Lab.power_loss, "aaa-c", TINY
    ),
    "the folder of the log is not synced": Fault(names_not_synced("log"), Lab.power_loss, "oa"),
    "names are not settled when opening": Fault(
        left_out(Store, "settle_names"), Lab.kill_then_power_loss, "o"
    ),
    "a torn tail is not cut off": Fault(tail_believed_without_syncing, Lab.kill, "aa"),
    "old segments go before the new manifest is there": Fault(
        unlinked_before_committed, Lab.kill, "aaac", TINY
    ),
    "what supersedes is not on disk when the superseded goes": Fault(
        left_out(Log, "sync"), Lab.power_loss, "rrrr-c", mode(Durability.OS)
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_laboratory_sees_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the faults nothing is seen: that is what `test_crash_states` says."""
    fault = FAULTS[name]
    fault.break_it(monkeypatch)
    with pytest.raises(AssertionError):
        fault.crash(Lab(per_crash_max=24), fault.workload, fault.config)
