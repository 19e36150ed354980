"""The examples run, and do what they say."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sirius.testing.processes import free_ports
from tests.walkthrough import Page, Shell, is_said

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
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
    with urllib.request.urlopen(request, timeout=60) as answer:
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


CONFIG_FILES = EXAMPLES / "config_files"


def on_free_ports(folder: Path, page: str) -> str:
    """Put ports that nobody uses in place of those in the files and on their page; return the page."""
    ports = sorted(set(re.findall(r":(7\d\d\d|8\d\d\d)\b", page)))
    # In their order, by which nodes are listed.
    free = dict(zip(ports, map(str, sorted(free_ports(len(ports)))), strict=True))

    def moved(text: str) -> str:
        # A port with a letter in it, the mistake that the page shows, stays as it is.
        return re.sub(r":(7\d\d\d|8\d\d\d)\b", lambda found: f":{free[found[1]]}", text)

    for path in folder.glob("*.toml"):
        path.write_text(moved(path.read_text()))
    return moved(page)


def test_the_page_on_configuration_files_shows_the_files_that_are_there() -> None:
    page = Page((CONFIG_FILES / "README.md").read_text())
    assert page.unknown == set()
    there = {path.name: path.read_text() for path in CONFIG_FILES.glob("*.toml")}
    for name in ("films2.toml", "films3.toml"):
        assert there.pop(name) == there["films1.toml"].replace('1"', f'{name[5]}"')
    assert page.files == there


@pytest.mark.deep
def test_the_page_on_configuration_files_can_be_typed_along(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    shutil.copytree(CONFIG_FILES, folder)
    page = Page(on_free_ports(folder, (CONFIG_FILES / "README.md").read_text()))
    assert len(page.steps) > 15
    with Shell(folder) as shell:
        for step in page.steps:
            shell.do(step)
        assert set(shell.stop()) == {0}


def test_a_page_is_compared_line_by_line() -> None:
    assert is_said("a …  b\n…\nc", "a xx b\nmore\nand more\nc\n")
    assert is_said("a\n…", "a\n")
    for said in ("a b\nc", "a x b\nc\nd", "b\nc", ""):
        assert not is_said("a … b\n…\nc\n", said)
