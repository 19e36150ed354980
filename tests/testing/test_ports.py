"""Ports that are handed out for processes which are yet to be started."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sirius.testing.processes import free_ports, ports


@pytest.fixture(autouse=True)
def own_counter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Others run tests at the same time."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_nobody_is_told_of_a_port_twice() -> None:
    # A lock on a file is between open files: threads are as good as processes.
    with ThreadPoolExecutor(8) as pool:
        found = [port for some in pool.map(free_ports, [7] * 30) for port in some]
    assert len(set(found)) == 210


def test_the_system_hands_none_of_them_out() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if first < 32768:
        pytest.skip("this system was told to hand out more than others do")
    assert not set(free_ports(100)) & set(range(first, last + 1))


def test_a_port_that_somebody_has_is_not_free() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        assert not ports._is_free(holder.getsockname()[1])


def test_ports_that_are_not_free_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(20_000, 20_003))
    monkeypatch.setattr(ports, "_is_free", lambda port: port != 20_001)
    assert [set(free_ports(2)) for _ in range(3)] == [{20_000, 20_002}] * 3
    with pytest.raises(OSError, match="20000 to 20002 only"):
        free_ports(3)


def test_they_begin_again_when_all_were_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(20_000, 20_003))
    monkeypatch.setattr(ports, "_is_free", lambda _: True)
    first = [free_ports(1) for _ in range(3)]
    assert sorted(first) == [[20_000], [20_001], [20_002]]
    assert [free_ports(1) for _ in range(3)] == first
