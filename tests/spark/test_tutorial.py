"""The pages on Spark can be typed along: every command and every line of Python on them is run, in order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sirius.testing.processes import free_ports
from tests.walkthrough import Page, Shell, is_said, steps_of

TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "spark"
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4}\b")


def on_free_ports(text: str) -> str:
    """Put ports that nobody uses in place of those on a page."""
    ports = sorted(set(PORT.findall(text)))
    # In their order, by which nodes are listed.
    free = dict(zip(ports, map(str, sorted(free_ports(len(ports)))), strict=True))
    return PORT.sub(lambda found: free[found[0]], text)


def type_along(page: Page, shell: Shell, names: dict[str, Any]) -> Iterator[str]:
    """Do what a page says; yield the kinds of its blocks."""
    printed = ""
    for kind, _, content in page.blocks:
        if kind == "console":
            for step in steps_of(content):
                shell.do(step)
        elif kind == "python":
            with redirect_stdout(StringIO()) as out:
                exec(compile(content, "the page", "exec"), names)
            printed = out.getvalue()
        else:
            assert kind == "text"
            assert is_said(content, printed), f"{content}\nwas:\n{printed}"
        yield kind


def test_the_tutorial_can_be_typed_along(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "films"
    shutil.copytree(TUTORIAL, folder)
    monkeypatch.chdir(folder)
    page = Page(on_free_ports((TUTORIAL / "README.md").read_text()))
    with Shell(folder) as shell:
        kinds = list(type_along(page, shell, {}))
        assert set(shell.stop()) == {0}
    assert (kinds.count("python"), kinds.count("console")) == (11, 6)
    assert spark.range(3).count() == 3
