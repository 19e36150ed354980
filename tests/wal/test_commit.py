"""Group commit on its own."""

from __future__ import annotations

import threading

import pytest

from sirius.errors import LogFailed
from sirius.wal.commit import GroupCommit


def commits(written: list[list[str]], *, background: bool) -> GroupCommit[str]:
    return GroupCommit(
        "test", written.append, start=0, pending_bytes_max=100, background=background
    )


def queue(group: GroupCommit[str], *items: str) -> None:
    for item in items:
        with group.changed:
            group.queue(item, len(item), group.queued + 1)


def test_what_waits_is_written_as_one_group() -> None:
    written: list[list[str]] = []
    group = commits(written, background=False)
    queue(group, "a", "b", "c")
    assert (written, group.durable) == ([], 0)
    assert group.flush() == 3
    assert written == [["a", "b", "c"]]


@pytest.mark.parametrize("background", [False, True])
def test_a_callback_that_raises_does_not_stop_the_writing(background: bool) -> None:
    written: list[list[str]] = []
    called: list[int] = []
    group = commits(written, background=background)

    def failing(point: int) -> None:
        called.append(point)
        raise ValueError("the caller's fault")

    group.on_durable = failing
    for number in range(1, 4):
        queue(group, str(number))
        assert group.flush(timeout_s=60) == number
    assert group.close()
    assert called == [1, 2, 3]
    assert [item for group_ in written for item in group_] == ["1", "2", "3"]


def test_groups_grow_while_one_is_being_written() -> None:
    written: list[list[str]] = []
    begun, go_on = threading.Event(), threading.Event()

    def slowly(group: list[str]) -> None:
        begun.set()
        assert go_on.wait(60)
        written.append(group)

    group = GroupCommit("test", slowly, start=0, pending_bytes_max=100, background=True)
    queue(group, "a")
    assert begun.wait(60)
    queue(group, "b", "c")
    go_on.set()
    assert group.flush(timeout_s=60) == 3
    assert written == [["a"], ["b", "c"]]
    group.close()


def test_whatever_a_write_raises_whoever_waits_hears_of_it() -> None:
    def broken(_: list[str]) -> None:
        raise RuntimeError("a bug")

    group = GroupCommit("test", broken, start=0, pending_bytes_max=100, background=False)
    queue(group, "a")
    with pytest.raises(RuntimeError):
        group.flush()
    with pytest.raises(LogFailed, match="a bug"):
        queue(group, "b")
    assert not group.close()


def lingering(written: list[list[str]], linger_s: float) -> GroupCommit[str]:
    return GroupCommit(
        "test", written.append, start=0, pending_bytes_max=100, background=True, linger_s=linger_s
    )


def test_a_group_waits_for_more() -> None:
    written: list[list[str]] = []
    group = lingering(written, 3600)
    queue(group, "a")
    with group.changed:
        assert not group.changed.wait_for(lambda: group.durable, timeout=0.2)
    queue(group, "b", "c")
    group.close()
    assert written == [["a", "b", "c"]]


def test_it_does_not_wait_when_somebody_waits_for_it() -> None:
    written: list[list[str]] = []
    group = lingering(written, 3600)
    queue(group, "a")
    assert group.flush(timeout_s=60) == 1
    queue(group, "b")
    group.close()
    assert written == [["a"], ["b"]]


def test_it_does_not_wait_when_much_is_waiting() -> None:
    written: list[list[str]] = []
    group = lingering(written, 3600)
    with group.changed:
        group.queue("long", 60, 1)
    with group.changed:
        assert group.changed.wait_for(lambda: group.durable == 1, timeout=60)
    group.close()
