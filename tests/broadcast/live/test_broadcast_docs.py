"""What the page on the broadcast layer shows runs, and is true; so does the example."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sirius.broadcast import LocalProxy
from sirius.config.broadcast import BroadcastConfig
from tests.test_examples import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "broadcast.md"
TEXT = PAGE.read_text("utf-8")
SNIPPETS = [
    # A reader's machine has nothing else to do.
    snippet.replace("timeout=10", "timeout=60")
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(number: int) -> None:
    exec(compile(SNIPPETS[number], f"{PAGE.name}[{number}]", "exec"), {})


def test_the_snippets_are_found_and_say_something() -> None:
    assert len(SNIPPETS) == 4
    assert all("assert" in snippet for snippet in SNIPPETS)


def test_the_file_of_a_region_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "europe.toml").write_text(text)
    config = BroadcastConfig.load(tmp_path / "europe.toml")
    assert list(config.streams) == list(tomllib.loads(text)["streams"])
    assert config.tls.is_on


def test_the_status_has_the_fields_of_the_page() -> None:
    with LocalProxy(["films"]) as proxy:
        status = proxy.status()
    said = set(
        re.findall(r"`(?:streams\.S)?\.?([a-z_]+)`", TEXT.partition("## The status of a proxy")[2])
    )
    there = {*status, *status["streams"]["films"]} - {"streams"}
    assert there <= said


def test_the_example_tells_caches_of_three_regions() -> None:
    shown = run("broadcast.py")
    assert "price/7 everywhere: europe 120, america 120, asia 120" in shown
    assert "cut off, asia still reads 100" in shown
    assert "back after 3 changes: 97 of 100 prices are left" in shown
    assert "price/2 is 130" in shown
