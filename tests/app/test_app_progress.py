"""What `sirius serve` says while it is not ready."""

from __future__ import annotations

from dataclasses import replace

from sirius.app.progress import EVERY_S, Progress
from sirius.cli.commands.status import _facts
from sirius.ops.status import State
from tests.ops.test_ops_metrics import STATUS

REPLAYING = replace(STATUS, state=State.REPLAYING, replayed=1_200_000, replay_total=5_000_000)
CATCHING_UP = replace(STATUS, state=State.CATCHING_UP, applied=90, known=100, leader=None)
READY = replace(STATUS, state=State.READY, problem=None)


def test_a_replay_says_how_far_it_is_now_and_then() -> None:
    progress = Progress()
    said = "127.0.0.1:7401: replaying: 1,200,000 records of a log up to 5,000,000"
    assert progress.line(REPLAYING, 0.0) == said
    assert progress.line(REPLAYING, EVERY_S - 0.1) is None
    assert progress.line(REPLAYING, EVERY_S) == said
    assert progress.line(REPLAYING, EVERY_S + 0.1) is None


def test_a_new_state_is_said_at_once_and_being_ready_once() -> None:
    progress = Progress()
    progress.line(REPLAYING, 0.0)
    found = progress.line(CATCHING_UP, 0.1)
    assert found == "127.0.0.1:7401: catching_up: at 90 of 100, leader: none"
    assert progress.line(READY, 0.2) == "127.0.0.1:7401: ready"
    assert progress.line(READY, 1000.0) is None
    sick = replace(READY, state=State.DISK_TROUBLE, problem="the disk is full")
    assert progress.line(sick, 1001.0) == "127.0.0.1:7401: disk_trouble: the disk is full"


def test_segments_that_come_as_files_are_counted() -> None:
    status = replace(CATCHING_UP, catch_up_bytes=12_340_000, catch_up_bytes_total=2_000_000_000)
    assert (Progress().line(status, 0.0) or "").endswith(", 12.3 of 2,000.0 MB of segments")


def test_the_status_of_a_node_that_replays_says_how_far_it_is() -> None:
    assert dict(_facts(REPLAYING.as_dict()))["replayed"].startswith("1,200,000 records of a log")
    assert "replayed" not in dict(_facts(READY.as_dict()))
