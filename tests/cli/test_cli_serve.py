"""`sirius serve`: a real process, asked over HTTP, stopped and killed."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from sirius.wal import LogReader, OsFileSystem
from sirius.wal.store import Store
from sirius.wal.verify.verify import verify
from tests.cli.processes import Process, Serving
from waltool.cli import run as waltool


def data(folder: Path) -> str:
    return str(folder / "data")


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with Serving("--data", data(tmp_path)) as node:
        node.await_ready()
        assert node.announced["data"] == data(tmp_path)
        assert node.announced["pid"] == node.popen.pid
        assert node.ask("PUT", "/storage/k", b"v")[0] == 204
        assert node.ask("GET", "/storage/k") == (200, b"v")
        assert b"sirius_applied_seq 2.0" in node.ask("GET", "/metrics")[1]
        code, _, err = node.end(signal.SIGTERM)
    assert code == 0
    assert "INFO sirius.app: embedded: " in err
    assert verify(Store(OsFileSystem(), data(tmp_path))).sound


def test_ctrl_c_is_a_clean_end_too(tmp_path: Path) -> None:
    with Serving("--data", data(tmp_path)) as node:
        assert node.interrupt()[0] == 0


def test_it_ends_with_its_standard_input_if_wanted(tmp_path: Path) -> None:
    with Serving("--data", data(tmp_path), "--until-eof") as node:
        assert node.popen.stdin is not None
        node.popen.stdin.write("go on\n")
        node.popen.stdin.flush()
        node.await_ready()
        assert node.end()[0] == 0


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, mode: str) -> None:
    with Serving("--data", data(tmp_path), "--durability", mode) as node:
        node.await_ready()
        for number in range(20):
            assert node.ask("PUT", f"/storage/k{number}", b"%d" % number)[0] == 204
        before = json.loads(node.ask("GET", "/digest")[1])
        assert node.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with Serving("--data", data(tmp_path)) as node:
        node.await_ready()
        after = json.loads(node.ask("GET", "/digest")[1])
        assert (after["digest"], after["keys"]) == (before["digest"], 20)


def test_a_new_node_gets_the_data_of_a_copy_through_waltool(tmp_path: Path) -> None:
    with Serving("--data", data(tmp_path), "--durability", "os") as node:
        node.await_ready()
        for key in ("a/b", "50%25", "%C3%BC"):
            node.ask("PUT", f"/storage/{key}", key.encode())
        node.ask("DELETE", "/storage/a/b")
        before = json.loads(node.ask("GET", "/digest")[1])
        with Process("snapshot", data(tmp_path), str(tmp_path / "copy")) as process:
            assert process.end()[0] == 0
    with Serving("--data", str(tmp_path / "new"), "--durability", "os") as node:
        node.await_ready()
        assert waltool(["replay", "-q", str(tmp_path / "copy"), f"{node.http}/storage"]) == 0
        after = json.loads(node.ask("GET", "/digest")[1])
    assert (
        (after["digest"], after["keys"])
        == (before["digest"], before["keys"])
        == (after["digest"], 2)
    )


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "sirius.toml").write_text('data = "films"\n[log]\nbody_bytes_max = 1000\n')
    with Serving("--config", str(tmp_path / "sirius.toml")) as node:
        node.await_ready()
        status, body = node.ask("PUT", "/storage/k", b"x" * 1001)
        assert (status, body) == (413, b"the body has 1,001 bytes, the limit is 1,000\n")
    assert LogReader.open(str(tmp_path / "films")).last >= 0


def test_a_port_that_is_taken_is_wrong_usage(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Process("serve", "--data", data(tmp_path), "--http", address) as process:
            code, out, err = process.end()
    assert (code, out) == (2, "")
    assert f"sirius: cannot listen on {address}: " in err
    assert "Traceback" not in err


def test_two_nodes_cannot_have_one_folder(tmp_path: Path) -> None:
    with (
        Serving("--data", data(tmp_path)),
        Process("serve", "--data", data(tmp_path), "--http", "127.0.0.1:0") as second,
    ):
        code, _, err = second.end()
    assert code == 2
    assert err.endswith(f"sirius: {data(tmp_path)} is open for writing in another place\n")


def test_people_get_a_line(tmp_path: Path) -> None:
    with Process("serve", "--data", data(tmp_path), "--http", "127.0.0.1:0") as node:
        assert node.line().startswith("serving http://127.0.0.1:")
        assert node.interrupt()[0] == 0


def test_lines_for_programs_are_json_with_facts(tmp_path: Path) -> None:
    with Serving("--data", data(tmp_path), "--log-format", "json") as node:
        node.await_ready()
        _, _, err = node.end(signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines()]
    [leads] = [line for line in lines if "leader" in line]
    assert leads["message"] == "embedded: embedded leads, round 1"
    assert (leads["node"], leads["leader"], leads["ballot"]) == ("embedded", "embedded", 1)
    assert (leads["level"], leads["logger"]) == ("info", "sirius.node")
    [voters] = [line["voters"] for line in lines if "voters" in line]
    assert voters == ["embedded"]
    assert all(line["time"].endswith("+00:00") for line in lines)
