"""Lines of settings: compared with a writer that knows where it wrote them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.config.lines import Place, line_of, places

TEXT = '''\
# name = "not here"
name = "a"   # data = 1
"quoted key" = 1
'literal' = 2
"es\\u0063aped" = 3
members = [  # one
    "x:1",

    "y:2", "z:3",
    # "gone:4",
    ["nested",
     "deep"], {a = 1, b = [1]},
]
empty = []
note = """
[tls]
data = "inside a text"
""\\"" still inside
"""
raw = \'\'\'
key = 'x'
\'\'\'\'\'
after = 1.5
requests.timeout_s = 5
requests . ack = "applied"

[ log ]
segment_bytes_max = 1
inline = { a = "]", b = '}' }
[tls.roles]
"*.example" = [
  "member",
]
[[twice]]
one = 1
[[twice]]
two = 2
last = "[" # ['''

EXPECTED: dict[Place, int] = {
    ("name",): 2,
    ("quoted key",): 3,
    ("literal",): 4,
    ("escaped",): 5,
    ("members",): 6,
    ("members", 0): 7,
    ("members", 1): 9,
    ("members", 2): 9,
    ("members", 3): 11,
    ("members", 4): 12,
    ("empty",): 14,
    ("note",): 15,
    ("raw",): 20,
    ("after",): 23,
    ("requests",): 24,
    ("requests", "timeout_s"): 24,
    ("requests", "ack"): 25,
    ("log",): 27,
    ("log", "segment_bytes_max"): 28,
    ("log", "inline"): 29,
    ("tls",): 30,
    ("tls", "roles"): 30,
    ("tls", "roles", "*.example"): 31,
    ("tls", "roles", "*.example", 0): 32,
    ("twice",): 34,
    ("twice", "one"): 35,
    ("twice", "two"): 37,
    ("twice", "last"): 38,
}


def test_every_kind_of_statement_has_its_line() -> None:
    tomllib.loads(TEXT)
    assert places(TEXT) == EXPECTED


def test_a_text_may_end_in_quotes_of_its_own() -> None:
    text = "x = [ \"\"\"a\"\"\"\", \"b\",\n\"c\"]\ny = [ '''a'''', 'b',\n'c']"
    assert tomllib.loads(text) == {"x": ['a"', "b", "c"], "y": ["a'", "b", "c"]}
    assert places(text) == {
        ("x",): 1,
        ("x", 0): 1,
        ("x", 1): 1,
        ("x", 2): 2,
        ("y",): 3,
        ("y", 0): 3,
        ("y", 1): 3,
        ("y", 2): 4,
    }


def test_a_place_without_a_line_has_that_of_what_it_is_in() -> None:
    assert line_of(EXPECTED, ("log", "inline", "a")) == 29
    assert line_of(EXPECTED, ("members", 1)) == 9
    assert line_of(EXPECTED, ("members", 17)) == 6
    assert line_of(EXPECTED, ("nowhere",)) is None
    assert line_of(EXPECTED, ()) is None


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing", "[table]", "a = 1"])
def test_files_without_an_end_of_line_are_read_to_their_end(text: str) -> None:
    tree = tomllib.loads(text)
    assert {place[0] for place in places(text)} == set(tree)


# ---------------------------------------------------------------------- against a writer

BARE = st.text(alphabet="ab_-1", min_size=1, max_size=3)
QUOTED = st.text(alphabet='a=.[]#"\\ \té', max_size=3)
VALUES = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        "1979-05-27T07:32:00Z",
        '"a # b = [c"',
        "'{'",
        '"""\n[x]\ny = 1\n"""',
        "'''\n'a' = 2 ''\n'''",
        "{}",
        "{ x = 1, y = [']'] }",
        '""',
        '"\\""',
        '"""a\\"""b"""""',
        "''''a''''",
    ]
)
NOISE = st.sampled_from(["", "# a = 1", "#[x]", "   ", "\t# \"'''"])


def quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{escaped}"'


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Place, int]]:
    """A TOML file, and the line of each of its tables, keys and elements."""
    lines: list[str] = []
    wanted: dict[Place, int] = {}

    def put(text: str) -> None:
        lines.extend(text.split("\n"))

    def key(name: str, is_bare: bool) -> str:
        return name if is_bare else quoted(name)

    def names() -> Any:
        return draw(st.tuples(QUOTED | BARE, st.just(False)) | st.tuples(BARE, st.just(True)))

    tables = draw(st.lists(st.tuples(QUOTED | BARE, st.just(False)), max_size=3, unique=True))
    for table in [None, *tables]:
        base: Place = ()
        if table is not None:
            base = ("t" + table[0],)
            put(f"[{key(str(base[0]), False)}] {draw(NOISE)}")
            wanted[base] = len(lines)
        for number in range(draw(st.integers(0, 3))):
            put(draw(NOISE))
            name, is_bare = names()
            name += str(number)
            wanted[(*base, name)] = len(lines) + 1
            if draw(st.booleans()):
                put(f"{key(name, is_bare)} = {draw(VALUES)}{draw(NOISE)}")
                continue
            put(f"{key(name, is_bare)} = [ {draw(NOISE)}")
            for position in range(draw(st.integers(0, 3))):
                put(draw(NOISE))
                wanted[(*base, name, position)] = len(lines) + 1
                put(f"  {draw(VALUES)}, {draw(NOISE)}")
            put("]")
    return "\n".join(lines), wanted


@given(documents())
def test_lines_are_those_at_which_a_writer_wrote(document: tuple[str, dict[Place, int]]) -> None:
    text, wanted = document
    tomllib.loads(text)
    assert places(text) == wanted
