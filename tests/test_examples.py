"""The examples run, and do what they say."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


def test_quickstart_finds_what_it_wrote_before(tmp_path: Path) -> None:
    first, second = (run("quickstart.py", str(tmp_path / "films")) for _ in range(2))
    assert first.startswith("0 films were in the log")
    assert second.startswith("1001 films were in the log")
    assert "title/casablanca: {'year': 1942}" in second


def test_the_tv_guide_answers_from_its_indexes() -> None:
    shown = run("tv_guide.py")
    assert "959 showings on 40 channels" in shown
    assert "a showing without a time is rejected: showing/00000 is no showing" in shown
    assert "at 20:15, on all 40 channels" in shown
    assert 'titles that begin with "mo": [\'Moon of the ' in shown


def test_followers_have_everything_and_take_updates() -> None:
    shown = run("follower_cluster.py")
    assert "a follower has it: True" in shown
    assert shown.count("has 2 films") == 5


def ask(method: str, url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        content: bytes = answer.read()
    return content


def test_the_asyncio_service_writes_and_reads(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "asyncio_service.py"), "0", str(tmp_path / "films")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            line = service.stdout.readline()
            url = line.split()[-1]
            assert ask("PUT", f"{url}films/casablanca", b'{"year": 1942}').startswith(b"entry ")
            assert ask("GET", f"{url}films/casablanca") == b'{"year": 1942}'
            assert ask("DELETE", f"{url}films/casablanca").startswith(b"entry ")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                ask("GET", f"{url}films/casablanca")
        finally:
            service.send_signal(signal.SIGINT)
    assert service.returncode == 0
