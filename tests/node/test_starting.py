"""Starts that fail, and starts that could: what is left behind, and what is said."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from sirius import Sirius
from sirius.errors import TransportError, UsageError
from sirius.testing.processes import free_ports
from tests.driver.waiting import until
from tests.node.nodes import Dict, config


def threads() -> set[str]:
    return {each.name for each in threading.enumerate() if "poll_wrapper" not in each.name}


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = threads()
    [port] = free_ports(1)
    name = f"127.0.0.1:{port}"
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(TransportError, match="cannot listen"),
    ):
        Sirius(Dict(), config(tmp_path, name=name))
    assert threads() == before
    with Sirius(Dict(), config(tmp_path, name=name)) as sirius:
        assert sirius.enqueue_put("k", b"v").result(30).seq


def test_a_first_start_with_a_bad_member_file_fails_and_the_next_one_does_not(
    tmp_path: Path,
) -> None:
    before = threads()
    name, file = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "members"
    settings = config(tmp_path, name=name, members_file=file, members_poll_s=0.02)
    file.write_text("nobody")
    with pytest.raises(UsageError, match="members, line 1"):
        Sirius(Dict(), settings)
    assert threads() == before
    file.write_text(name)
    with Sirius(Dict(), settings) as sirius:
        assert sirius.status().wished == (name,)


def test_a_node_that_has_a_cluster_starts_with_a_bad_member_file_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, file = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "members"
    settings = config(tmp_path, name=name, members_file=file, members_poll_s=0.02)
    file.write_text(name)
    with Sirius(Dict(), settings) as sirius:
        sirius.enqueue_put("before", b"v").result(30)
    file.write_text("nobody")
    handler = Dict()
    with Sirius(handler, settings) as sirius:
        sirius.enqueue_put("after", b"v").result(30)
        assert handler.values.keys() == {"before", "after"}
        status = sirius.status()
        assert (status.wished, status.role) == ((name,), "leader")
        assert "members, line 1" in (status.members_problem or "")
        assert "the voters stay as they are" in caplog.text
        file.write_text(f"{name}\n# mended\n")
        until(lambda: sirius.status().members_problem is None)
