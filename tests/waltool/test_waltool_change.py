"""The commands that make, cut, mend and compare logs, where a transcript does not reach."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sirius.wal import Durability, Log, LogConfig, Op, Record
from waltool.cli import COMMANDS
from waltool.source import AncestorSource, kind_of, open_source
from waltool.transfer import KINDS

Waltool = Callable[..., Any]
CONFIG = LogConfig(durability=Durability.OS, background=False, reserve_bytes=0)
OURS = "init compact truncate repair convert export import replay diff digest".split()


def contents(path: Path) -> list[Record]:
    with open_source(str(path)) as source:
        return [record for batch in source.batches() for record in batch.records()]


def tree(path: Path) -> dict[str, bytes]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", OURS)
def test_help_begins_with_the_line_of_the_table_and_ends_with_examples(
    name: str, waltool: Waltool
) -> None:
    result = waltool(f"{name} --help")
    paragraphs = result.out.split("\n\n")
    examples = result.out.partition("Examples:\n")[2].splitlines()
    assert result.code == 0
    assert " ".join(paragraphs[1].split()) == COMMANDS[name].help
    assert "--json" in result.out
    assert len(examples) >= 2
    assert all(f"waltool {name}" in example for example in examples)


def test_every_command_of_these_has_a_transcript() -> None:
    testdata = Path(__file__).parent / "testdata"
    assert set(OURS) <= {path.stem for path in testdata.glob("*.txt")}


# ---------------------------------------------------------------------- init


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_log_is_empty_and_sound(kind: str, corpus: Path, waltool: Waltool) -> None:
    assert waltool(f"init --format {kind} new/").code == 0
    assert kind_of("new") == kind
    assert contents(corpus / "new") == []
    assert waltool("verify new").code == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "single"])
def test_an_empty_folder_will_do(kind: str, corpus: Path, waltool: Waltool) -> None:
    assert waltool(f"init --format {kind} folder").code == 0
    assert kind_of("folder") == kind


def test_a_file_does_not_take_the_place_of_a_folder(corpus: Path, waltool: Waltool) -> None:
    assert waltool("init --format single folder").code == 2
    assert (corpus / "folder").is_dir()


def test_a_link_to_an_empty_folder_stays_a_link(corpus: Path, waltool: Waltool) -> None:
    os.symlink("folder", "link")
    assert waltool("init --format ancestor-legacy link").code == 2
    assert os.listdir("folder") == []
    assert waltool("init link").code == 0
    assert os.path.islink("link")
    assert kind_of("folder") == "sirius"


def test_a_folder_stays_the_folder_it_was(corpus: Path, waltool: Waltool) -> None:
    before = os.stat("folder").st_ino
    assert waltool("init folder").code == 0
    assert os.stat("folder").st_ino == before
    with Log.open("folder", CONFIG) as log:
        assert log.put("key", b"body") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_nowhere_is_not_followed(kind: str, corpus: Path, waltool: Waltool) -> None:
    os.symlink("elsewhere", "link")
    assert waltool(f"init --format {kind} link").code == 2
    assert not (corpus / "elsewhere").exists()


# ---------------------------------------------------------------------- truncate


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "last"), [("y\n", 0, 4), ("n\n", 2, 10), ("", 130, 10)])
def test_on_a_terminal_it_asks(
    answer: str,
    code: int,
    last: int,
    corpus: Path,
    waltool: Waltool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    result = waltool("truncate --after 4 films", terminal=True)
    assert result.code == code
    assert "films: 6 sequence numbers, 5 to 10: remove them for good?" in result.err
    with open_source("films") as source:
        assert source.last == last


def test_without_a_yes_nothing_is_touched(corpus: Path, waltool: Waltool) -> None:
    before = tree(corpus / "films")
    assert waltool("truncate --after 4 films").code == 2
    assert tree(corpus / "films") == before


def test_a_log_in_use_is_not_truncated(corpus: Path, waltool: Waltool) -> None:
    with Log.open("films", CONFIG):
        result = waltool("truncate --after 4 --yes films")
    assert result.code == 2
    assert result.err == "waltool: films is open for writing in another place\n"
    assert len(contents(corpus / "films")) == 10


def test_a_member_of_a_cluster_is_not_truncated(corpus: Path, waltool: Waltool) -> None:
    (corpus / "films" / "journal").mkdir()
    result = waltool("truncate --after 4 --yes films")
    assert result.code == 2
    assert "must not be truncated" in result.err
    assert len(contents(corpus / "films")) == 10


def test_numbers_are_given_again(corpus: Path, waltool: Waltool) -> None:
    assert waltool("truncate --after 4 --yes films").code == 0
    with Log.open("films", CONFIG) as log:
        assert log.put("key", b"body") == 5


# ---------------------------------------------------------------------- repair


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_log_without_any_manifest_is_repaired(
    folder_too: bool, corpus: Path, waltool: Waltool
) -> None:
    before = contents(corpus / "films")
    shutil.rmtree("films/manifests")
    if not folder_too:
        os.mkdir("films/manifests")
    assert waltool("info films").code == 2
    assert waltool("repair --dry-run films").code == 0
    assert waltool("info films").code == 2
    assert waltool("repair films").code == 0
    assert contents(corpus / "films") == before


def test_a_log_in_use_is_not_repaired(corpus: Path, waltool: Waltool) -> None:
    with Log.open("films", CONFIG):
        result = waltool("repair films")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1


# ---------------------------------------------------------------------- one file


def test_a_log_in_one_file_that_was_cut_is_reported(corpus: Path, waltool: Waltool) -> None:
    assert waltool("convert films one --to single").code == 0
    whole = (corpus / "one").read_bytes()
    (corpus / "one").write_bytes(whole[:-1])
    says = "the file has no closing mark: 1 to 10 are whole"
    result = waltool("verify one")
    assert (result.code, result.err) == (1, "")
    assert result.lines[0] == f"error: one: byte {len(whole) - 48}: {says}"
    for line in ("info one", "head one", "convert one copy --to sirius", "digest one"):
        result = waltool(line)
        assert (result.code, result.out) == (1, "")
        assert says in result.err


@pytest.mark.parametrize("deep", ["", "--deep"])
def test_damage_in_a_log_in_one_file_is_found(deep: str, corpus: Path, waltool: Waltool) -> None:
    assert waltool("convert films one --to single").code == 0
    data = bytearray((corpus / "one").read_bytes())
    data[data.index(b"Humphrey")] ^= 0x40
    (corpus / "one").write_bytes(data)
    result = waltool(f"verify {deep} one")
    assert result.code == 1
    assert "a block's payload checksum does not match" in result.lines[0]


def test_a_file_inside_a_log_is_not_taken_for_a_log(corpus: Path, waltool: Waltool) -> None:
    data = "films/segments/00000001/data"
    assert "give the folder that holds manifests/" in waltool(f"head {data}").err
    (corpus / "alone").write_bytes((corpus / data).read_bytes())
    assert waltool("head -n 1 alone").code == 0
    (corpus / "second").write_bytes(Path("films/segments/00000002/data").read_bytes())
    assert "one file of a log" in waltool("head second").err


# ---------------------------------------------------------------------- diff and digest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("log", ["films", "strange", "empty", "gaps"])
def test_a_state_is_the_same_in_every_format(
    log: str, kind: str, corpus: Path, waltool: Waltool
) -> None:
    assert waltool(f"convert {log} copy --to {kind} --drop-control").code == 0
    assert waltool("digest copy").out == waltool(f"digest {log}").out
    assert waltool(f"diff {log} copy").out == "the same state\n"
    assert waltool(f"diff copy {log}").code == 0


def test_what_a_diff_finds_is_what_dicts_say(corpus: Path, waltool: Waltool) -> None:
    with Log.open("other", CONFIG) as log:
        for number in range(40):
            log.put(f"key/{number % 15}", f"{number % 7}".encode())
            if number % 5 == 0:
                log.delete(f"key/{number % 11}")
    assert waltool("truncate --after 30 --yes other").code == 0
    assert waltool("convert other before --to single").code == 0
    with Log.open("other", CONFIG) as log:
        for number in range(12):
            log.put(f"key/{number + 6}", b"new") if number % 3 else log.delete(f"key/{number}")
    states = []
    for name in ("before", "other"):
        state: dict[str, bytes] = {}
        for record in contents(corpus / name):
            state.pop(record.key, None)
            if record.op == Op.PUT:
                state[record.key] = record.body
        states.append(state)
    left, right = states
    wanted = {key for key in left | right if left.get(key) != right.get(key)}
    result = waltool("diff --keys-only before other")
    assert result.code == 1
    assert result.lines == sorted(wanted)
    signs = {
        line[2:].partition("  (")[0]: line[0] for line in waltool("diff before other").lines[:-1]
    }
    assert signs == {
        key: "+" if key not in left else "-" if key not in right else "!" for key in wanted
    }


def test_a_segment_of_the_ancestor_is_read_alone(corpus: Path) -> None:
    with AncestorSource("old") as source:
        found = [
            [seq for batch in source.segment_batches(segment) for seq in batch.seq.tolist()]
            for segment in source.reader.segments()
        ]
    assert found == [[1, 2, 5], [6]]


def test_a_quarantined_segment_has_no_digest(corpus: Path, waltool: Waltool) -> None:
    with Log.open("films", CONFIG) as log:
        log.quarantine(log.manifest.segments[0].id, "a test")
    for line in ("digest films", "diff films old"):
        result = waltool(line)
        assert result.code == 1
        assert "1 to 5 are unavailable" in result.err
