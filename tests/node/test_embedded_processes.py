"""What can only be seen from outside: kill -9, a fork, a disk that does not take any more.

Each test runs a script in a process of its own, with `PRELUDE` in front of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sirius import Sirius
from tests.node.nodes import Dict, config

ROOT = Path(__file__).resolve().parents[2]

PRELUDE = """
import json, os, sys
from pathlib import Path
from sirius import Sirius
from sirius.errors import *
from tests.driver.waiting import until
from tests.node.nodes import Dict, config
folder, durability = Path(sys.argv[1]), sys.argv[2]
handler = Dict()
made = config(folder, durability=durability)
"""


def begin(script: str, folder: Path, durability: str = "os") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, str(folder), durability],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def outcome(script: str, folder: Path, durability: str = "os") -> Any:
    """Run a script to its end; return the JSON that it prints last."""
    process = begin(script, folder, durability)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        # With its children, which hold the other ends of the pipes.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"it hangs: {out}\n{err}") from None
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


WRITE = """
with Sirius(handler, made) as sirius:
    number, acks = 0, []
    while True:
        acks.append((number, sirius.enqueue_put(f"k{number}", b"%d" % number)))
        number += 1
        if len(acks) == 64:
            for key, ack in acks:
                ack.result(30)
                print(key, flush=False)
            sys.stdout.flush()
            acks = []
"""


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, durability: str) -> None:
    acknowledged: list[int] = []
    with begin(WRITE, tmp_path, durability) as process:
        assert process.stdout is not None
        for line in process.stdout:
            # The last one may be cut off.
            if line.endswith("\n"):
                acknowledged.append(int(line))
            if len(acknowledged) == 500:
                process.kill()
    assert len(acknowledged) >= 500
    handler = Dict()
    with Sirius(handler, config(tmp_path, durability=durability)) as sirius:
        # What was decided and not in the log yet is decided again, from the journal, before the node is ready.
        for number in acknowledged:
            assert handler.values[f"k{number}"] == b"%d" % number
        assert sirius.enqueue_put("after", b"v").result(30).error is None
    assert set(handler.values) - {"after"} == {f"k{n}" for n in range(len(handler.values) - 1)}


FORK = """
with Sirius(handler, made) as sirius:
    sirius.enqueue_put("k", b"v").result(30)
    read, write = os.pipe()
    if os.fork() == 0:
        calls = {
            "put": lambda: sirius.enqueue_put("k", b"v"),
            "delete": lambda: sirius.enqueue_delete("k"),
            "get": lambda: sirius.enqueue_get("k"),
            "linearizable": lambda: sirius.enqueue_get("k", linearizable=True),
            "wait_for": lambda: sirius.wait_for(1, 0),
            "staleness": sirius.staleness,
            "is_online": sirius.is_online,
            "is_ready": sirius.is_ready,
            "wait_until_ready": lambda: sirius.wait_until_ready(0),
            "status": sirius.status,
            "transfer": sirius.transfer_leadership,
            "compact": sirius.compact,
            "close": sirius.close,
        }
        said = {}
        for name, call in calls.items():
            try:
                said[name] = repr(call())
            except Exception as error:
                said[name] = type(error).__name__ + (" fork" if "fork" in str(error) else "")
        try:
            # And one of its own works.
            (folder / "child").mkdir()
            with Sirius(Dict(), config(folder / "child")) as own:
                said["own"] = own.enqueue_put("k", b"v").result(30).error
            os.write(write, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(write)
    said = json.loads(os.fdopen(read, "rb").read())
    os.wait()
    said["parent"] = sirius.enqueue_put("k", b"v").result(30).error
print(json.dumps(said))
"""


def test_after_a_fork_every_call_of_the_child_says_so(tmp_path: Path) -> None:
    said = outcome(FORK, tmp_path)
    assert said.pop("parent") is None
    assert said.pop("own") is None
    assert said
    assert set(said.values()) == {"NodeClosed fork"}, said


FULL = """
import resource
from sirius.driver import loop
# Time enough to look at the trouble: the next attempt may seem to succeed, until there is something to write.
loop._REOPEN_S = 4.0
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def put(number):
    try:
        sirius.enqueue_put(f"k{number}", bytes(500)).result(30)
        done.append(number)
    except NodeError as error:
        errors.append([type(error).__name__, str(error)])
done, errors = [], []
sirius = Sirius(handler, made)
sirius.wait_until_ready(30)
for number in range(50):
    put(number)
limit(60_000)
number = 50
while sirius.status().state != "disk_trouble" and number < 5000:
    put(number)
    number += 1
put(number)
said = {"full": sirius.status().as_dict(), "errors": errors[:]}
said["get"] = sirius.enqueue_get("k1").result(30).has_value
try:
    sirius.enqueue_get("k1", linearizable=True).result(30)
except ReadFailed as error:
    said["linearizable"] = str(error)
if sys.argv[2] == "os":
    limit(resource.RLIM_INFINITY)
    until(lambda: sirius.status().state == "ready")
    errors.clear()
    for number in range(6000, 6020):
        put(number)
    said["mended"] = errors
sirius.close()
limit(resource.RLIM_INFINITY)
with Sirius(again := Dict(), made) as sirius:
    said["lost"] = [number for number in done if f"k{number}" not in again.values]
    said["state"] = sirius.status().state
print(json.dumps(said))
"""


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_disk_that_takes_no_more_is_said_and_loses_nothing(
    tmp_path: Path, durability: str
) -> None:
    """The limit on the size of a file is the full disk. In mode `os` it is lifted, and the node goes on by itself."""
    said = outcome(FULL, tmp_path, durability)
    assert said["full"]["state"] == "disk_trouble"
    assert "disk is full" in said["full"]["problem"]
    first, last = said["errors"][0], said["errors"][-1]
    assert first[0] in ("OutcomeUnknown", "RequestRejected")
    assert last[0] == "RequestRejected"
    assert all("disk" in text for _, text in said["errors"])
    assert said["get"] is True, "reads of what is there go on"
    assert "disk" in said["linearizable"]
    assert said.get("mended", []) == []
    assert said["lost"] == []
    assert said["state"] == "ready"


def test_a_process_that_forgets_to_close_ends(tmp_path: Path) -> None:
    """Its threads must not keep it."""
    script = """
sirius = Sirius(handler, made)
sirius.wait_until_ready(30)
seq = sirius.enqueue_put("k", b"v").result(30).seq
print(json.dumps(seq))
"""
    assert outcome(script, tmp_path) > 0
    with Sirius(handler := Dict(), config(tmp_path)):
        assert handler.values == {"k": b"v"}


LOCK = """
sirius = Sirius(handler, made)
read, write = os.pipe()
if (child := os.fork()) == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
os.close(read)
sirius.close()
try:
    Sirius(Dict(), made).close()
    print(json.dumps("opened"))
except Exception as error:
    print(json.dumps(repr(error)))
os.close(write)
os.wait()
"""


def test_a_forked_child_does_not_hold_the_lock_of_a_node_that_was_closed(tmp_path: Path) -> None:
    assert outcome(LOCK, tmp_path) == "opened"
