"""The page about all settings is made from the code, and is up to date."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from sirius.config import SiriusConfig, reference
from sirius.config.loading import HIDDEN, sections
from sirius.config.reference import MEANINGS, texts_below_fields

page = functools.cache(reference.page)
ROOT = Path(__file__).resolve().parent.parent.parent


def settings() -> list[tuple[str, type, str]]:
    rows = [("", SiriusConfig), *sections().items()]
    found = [(name, its, field.name) for name, its in rows for field in dataclasses.fields(its)]
    return [row for row in found if row[2] not in sections() and (row[0], row[2]) not in HIDDEN]


def test_the_page_is_what_the_code_gives() -> None:
    command = "python -m sirius.config.reference > docs/configuration.md"
    assert (ROOT / "docs" / "configuration.md").read_text("utf-8") == page(), f"run {command}"


def test_the_page_is_printed() -> None:
    command = [sys.executable, "-m", "sirius.config.reference"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout == page()
    assert run.stderr == ""


@pytest.mark.parametrize(("section", "its", "name"), settings())
def test_every_setting_has_a_meaning_and_one_alone(section: str, its: type, name: str) -> None:
    here, there = texts_below_fields(its).get(name), MEANINGS.get(f"{section}.{name}")
    assert (here is None) != (there is None), (
        "write a text below the field, or move it from MEANINGS"
    )
    assert f"| `{name}` |" in page()


def test_meanings_are_those_of_settings() -> None:
    assert MEANINGS.keys() <= {f"{section}.{name}" for section, _, name in settings()}


def test_what_only_python_has_is_not_on_the_page() -> None:
    assert HIDDEN.keys() == {("paxos", "request_timeout_s")}
    # Catch-up has one of that name, and no other.
    assert page().count("| `request_timeout_s` |") == 1


def test_a_row_holds_name_type_default_and_meaning() -> None:
    row = '| `hang_s` | duration | `"10s"` | After how long the status calls a call hanging. It is not interrupted. |'
    assert row in page().splitlines()


class Fields:
    first: int
    """One | two,
    and three."""
    second: int
    third: int
    """Third."""


def test_the_text_below_a_field_becomes_one_line() -> None:
    assert texts_below_fields(Fields) == {"first": "One \\| two, and three.", "third": "Third."}


def test_every_row_has_four_columns() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(settings())
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
