"""Repair that is only asked what it would do, that is interrupted anywhere, or that has no room."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.wal.repair.repair import What
from tests.wal.repairs import (
    GONE,
    KEEP,
    ROOT,
    compacted,
    data,
    fixed,
    index,
    made,
    manifest,
    manifests,
    records,
    scenario,
    torn,
)

# ---------------------------------------------------------------------- dry runs


def wreckage() -> Iterator[MemoryFileSystem]:
    """Logs in all kinds of trouble."""
    rng = random.Random(11)
    for n in range(24):
        fs = compacted(KEEP if n % 2 else GONE)
        infos = manifest(fs).segments
        if n % 3 == 0:
            fs.flip(manifests(fs)[0], 80)
        for info in rng.sample(infos, 2):
            size = len(fs.read_bytes(data(info.id)))
            fs.flip(data(info.id), rng.randrange(size), rng.randrange(1, 256))
        if n % 4 == 0:
            fs.cut(data(infos[1].id), rng.randrange(500))
        if n % 5 == 0:
            fs.remove(index(infos[0].id))
        if n % 6 == 1:
            torn(fs)
        yield fs


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_dry_run_changes_nothing_and_says_what_would_be_done(accept_loss: bool) -> None:
    worked = 0
    for fs in wreckage():
        before, calls = fs.tree(), fs.operations
        report = fixed(fs, dry_run=True, accept_loss=accept_loss)
        assert fs.tree() == before
        assert fs.operations == calls
        done = fixed(fs, accept_loss=accept_loss)
        assert done.actions == report.actions
        assert (report.dry_run, done.dry_run) == (True, False)
        worked += done.changed
        assert not fixed(fs, accept_loss=accept_loss).changed
    assert worked > 10


def test_a_dry_run_does_not_even_make_the_lock_file() -> None:
    fs = made()
    fs.remove(f"{ROOT}/LOCK")
    before = fs.tree()
    fixed(fs, dry_run=True)
    assert fs.tree() == before


# ---------------------------------------------------------------------- crashes


SCENARIOS = ["sealed", "active", "manifest", "index and tail", "lossy"]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("mode", ["before", "partial"])
@pytest.mark.parametrize("states", [3, pytest.param(6, marks=pytest.mark.deep)])
def test_a_repair_that_crashes_at_any_call_can_be_done_again(
    name: str, mode: str, states: int
) -> None:
    before = records(made(8, KEEP))
    whole = scenario(name)
    done = fixed(whole, accept_loss=True)
    assert done.changed
    begun = len(scenario(name).operations)
    calls = whole.operations[begun:]
    repaired = records(whole)
    for call, (operation, _) in enumerate(calls, begun + 1):
        if mode == "partial" and operation != "append":
            continue
        fs = scenario(name)
        fs.crash_mode = "partial" if mode == "partial" else "before"
        fs.crash_at = call
        with pytest.raises(SimulatedCrash):
            fixed(fs, accept_loss=True)
        for left in [*fs.crash_states(states, seed=call), fs.kill()]:
            again = fixed(left, accept_loss=True)
            kept = [path for path in left.tree() if "/quarantine/" in path and "data" in path]
            assert len(kept) == (name in ("sealed", "active", "lossy"))
            assert fixed(left, accept_loss=True).actions == ()
            found = records(left)
            assert found == repaired
            if name != "lossy":
                assert found == before
            assert again.lost == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_repair_did_is_on_disk_when_it_returns(name: str) -> None:
    fs = scenario(name)
    fixed(fs, accept_loss=True)

    def lasting(left: MemoryFileSystem) -> dict[str, bytes]:
        # The index of an active segment is a hint, and the log does not sync its name either.
        active = index(manifest(fs).active.id)
        return {path: raw for path, raw in left.tree().items() if path != active}

    for left in fs.crash_states(50):
        assert lasting(left) == lasting(fs)


def test_a_segment_that_was_replaced_when_the_crash_came_is_still_kept() -> None:
    fs = scenario("sealed")
    fixed(fs)
    moved = next(at for at, (_, path) in enumerate(fs.operations) if "-> log/quarantine" in path)
    fs = scenario("sealed")
    damaged = fs.read_bytes(data(1))
    fs.crash_at = moved + 1
    with pytest.raises(SimulatedCrash):
        fixed(fs)
    left = fs.kill()
    report = fixed(left)
    assert [item.what for item in report.actions] == [What.KEPT]
    assert left.read_bytes(f"{ROOT}/quarantine/00000001-1/data") == damaged


def test_a_repair_that_runs_out_of_room_leaves_the_log_as_it_was() -> None:
    fs = scenario("sealed")
    fs.capacity_bytes = fs.used_bytes + 900
    with pytest.raises(Exception, match=r"full|space"):
        fixed(fs)
    assert not [path for path in fs.tree() if ".tmp/" in path]
    fs.capacity_bytes = None
    assert fixed(fs).lost == []
    assert records(fs) == records(made(8, KEEP))
