"""What a stranger expects of the repository: links that lead somewhere, targets that are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "proto").rglob("*.md")}
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")

TARGETS = set(
    "help install demo test test-deep proto coverage check format bench sim soak soak-seeds clean".split()
)


def relative_links(text: str) -> list[str]:
    """The files that a page links to; addresses, anchors and code are left out."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    targets = LINK.findall(prose)
    return [target.partition("#")[0] for target in targets if not ELSEWHERE.match(target)]


def has_path(text: bytes, path: str) -> bool:
    """Whether `text` names `path` or something below it, as a whole and not inside a longer one."""
    return (
        re.search(rb"(?<![\w./-])" + re.escape(os.fsencode(path)) + rb"(?![\w.-])", text)
        is not None
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page: Path) -> None:
    links = relative_links(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_pages_and_their_links_are_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "docs/architecture.md", "docs/decisions/README.md"} <= names
    assert "docs/architecture.md" in relative_links((ROOT / "README.md").read_text("utf-8"))


def test_only_links_to_files_count() -> None:
    page = "[a](b.md#c) [d](https://e/f.md) [g](#h) `[i](j.md)` [k](../l)\n```\n[m](n)\n```\n"
    assert relative_links(page) == ["b.md", "../l"]


def test_make_help_is_the_default_and_names_every_target() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    runs = [
        subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        for command in (["make"], ["make", "help"])
    ]
    assert runs[0].stdout == runs[1].stdout
    lines = [line.split(maxsplit=2) for line in runs[0].stdout.splitlines()]
    assert {words[1] for words in lines} == TARGETS
    assert all(len(words) == 3 for words in lines), "every target says what it does"


def test_ci_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(),
    reason="only git knows which files belong to the repository",
)
def test_no_file_names_the_place_of_this_checkout() -> None:
    # Files that git would add count too, so that a slip is seen before it is committed.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    command.append("--exclude-standard")
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    files = [ROOT / os.fsdecode(name) for name in listing.split(b"\0") if name]
    files = [path for path in files if path.is_file()]
    assert ROOT / "pyproject.toml" in files
    assert [path for path in files if has_path(path.read_bytes(), str(ROOT))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"cd /srv/checkout && make", True),
        (b"'/srv/checkout/docs'", True),
        (b"/srv/checkouts", False),
        (b"/mnt/srv/checkout", False),
        (b"https://host/srv/checkout", False),
    ],
)
def test_a_path_is_found_as_a_whole(text: bytes, found: bool) -> None:
    assert has_path(text, "/srv/checkout") is found
