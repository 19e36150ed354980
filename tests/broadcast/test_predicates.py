"""Predicates: the language, its meaning, its evaluation at once, and what it can prove."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.broadcast.columns import starts
from sirius.broadcast.events import Event, EventBatch
from sirius.broadcast.predicates import (
    Predicate,
    PredicateError,
    Table,
    covers,
    is_closed,
    matches,
    matching,
    parse,
    proof,
)
from sirius.broadcast.predicates.proof import implies
from sirius.broadcast.predicates.syntax import DEPTH_MAX
from sirius.broadcast.predicates.terms import topic_matches
from tests.broadcast.strategies import batch_of, events, placed, predicates

# ---------------------------------------------------------------------- the language


@given(predicates)
def test_a_predicate_reads_as_it_is_written(predicate: Predicate) -> None:
    again = parse(str(predicate))
    assert str(again) == str(predicate)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("seq<=10", "seq < 11"),
        ("  time < 1_000 ", "time < 1000"),
        ('key="a\\"b\\\\c\\x00"', 'key = "a\\"b\\\\c\\x00"'),
        ('key prefix "t/" and (year<1950 or year>=1980)', None),
        ('topic = "/movies/*" or seq < 5 and price != -3', None),
    ],
)
def test_texts_and_their_meaning(text: str, meaning: str | None) -> None:
    if meaning is None:
        meaning = text.replace("year<1950", "year < 1950").replace("year>=1980", "year >= 1980")
    assert str(parse(text)) == meaning


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 0, "a comparison"),
        ("seq", 3, "one of < <="),
        ("seq > 5", 4, "about what is older"),
        ("time = 5", 5, "about what is older"),
        ("seq < x", 6, "a number"),
        ("seq < 99999999999999999999", 6, "64 bits"),
        ("seq < 5 seq", 8, '"and", "or" or the end'),
        ("(seq < 5", 8, '"and", "or" or ")"'),
        ("seq < 5 and", 11, "a comparison"),
        ("and seq < 5", 0, "a comparison"),
        ('key = "a', 6, "does not end"),
        ("key = a", 6, 'a text in "quotes"'),
        ('key < "a"', 4, "one of = prefix"),
        (r'key = "ab\q"', 9, "a backslash"),
        ('topic = "movies"', 8, "a slash"),
        (r'topic = "/\xff"', 8, "a topic is text"),
        ("price ~ 5", 6, "means nothing"),
        ("Price > 5", 0, "small letters"),
        ("(" * (DEPTH_MAX + 1), DEPTH_MAX, "brackets"),
        ("price > " + "1" * 20_000, 16_384, "at most 16384 characters"),
    ],
)
def test_an_error_points_at_the_place(text: str, at: int, problem: str) -> None:
    with pytest.raises(PredicateError, match=re.escape(problem)) as caught:
        parse(text)
    assert caught.value.at == at
    _, shown, caret = str(caught.value).rsplit("\n", 2)
    assert len(shown) + 1 >= len(caret)
    assert (shown + " ")[len(caret) - 1] == (text + " ")[at]


def test_how_an_error_looks() -> None:
    with pytest.raises(PredicateError) as caught:
        parse('topic = "/movies/*" and seq > 100')
    assert str(caught.value) == (
        "seq can only be < or <=: a predicate is about what is older\n"
        '  topic = "/movies/*" and seq > 100\n'
        "                              ^"
    )


def test_bytes_that_are_no_text_are_pointed_at() -> None:
    with pytest.raises(PredicateError, match="no text") as caught:
        parse(b'key = "\xff"')
    assert caught.value.at == 7


@given(st.text(alphabet='seqtimkyopcrfxand<>=!()"/*\\0123 ', max_size=40))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        parse(text)
    except PredicateError as error:
        at = error.at
    else:
        at = 0
    assert 0 <= at <= len(text)


# ---------------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("/movies/*", "/movies/new", True),
        ("/movies/*", "/movies/new/german", True),
        ("/movies/*", "/movies", False),
        ("/movies/*", "/moviesx/new", False),
        ("/*/new", "/movies/new", True),
        ("/*/new", "/movies/old/new", False),
        ("/*", "/movies", True),
        ("/*", "", False),
        ("", "", True),
        ("/movies", "/movies", True),
    ],
)
def test_topics_with_stars(pattern: str, topic: str, fits: bool) -> None:
    """SESDAD, section 1: `/IST/*` takes every topic below `/IST/`."""
    assert topic_matches(pattern, topic) is fits


def table_of(batch: EventBatch) -> Table:
    return Table(
        batch.seqs,
        batch.times,
        batch.topics,
        batch.topic_ids,
        starts(batch.key_lengths),
        batch.key_lengths,
        np.frombuffer(batch.keys, np.uint8),
        batch.attributes,
    )


@given(placed(1, 0), predicates, st.data())
def test_all_at_once_is_the_same_as_one_by_one(
    found: list[Event], predicate: Predicate, data: st.DataObject
) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(found) - 1))))
    rows = np.array(chosen, np.int64)
    quick = matching(predicate, table_of(batch_of(found)), rows).tolist()
    assert quick == [row for row in chosen if matches(predicate, found[row])]


# ---------------------------------------------------------------------- proofs


@given(predicates, predicates, events(), st.integers(1, 40), st.integers(0, 40))
def test_what_is_proven_is_true(
    old: Predicate, new: Predicate, event: Event, seq: int, time: int
) -> None:
    event = event._replace(seq=seq, time=time)
    if implies(old, new) and matches(old, event):
        assert matches(new, event)
    if covers(new, old, 20, 20) and seq < 20 and time <= 20 and matches(old, event):
        assert matches(new, event)


@given(predicates, placed(1, 0))
def test_a_closed_predicate_holds_for_all_earlier_events_of_the_key(
    predicate: Predicate, found: list[Event]
) -> None:
    last = found[-1]
    if is_closed(predicate) and matches(predicate, last):
        for earlier in found:
            if (earlier.topic, earlier.key) == (last.topic, last.key):
                assert matches(predicate, earlier)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seq < 5", "seq < 5"),
        ("seq < 5", "seq < 9"),
        ('key = "abc"', 'key prefix "a"'),
        ('key prefix "ab"', 'key prefix "a"'),
        ('topic = "/a/b"', 'topic = "/a/*"'),
        ('topic = "/a/b/*"', 'topic = "/a/*"'),
        ('topic = "/*/c"', 'topic = "/*"'),
        ("price > 5", "price >= 5"),
        ("price = 5", "price != 4"),
        ("price < 5", "price != 5"),
        ('seq < 5 and key = "a"', "seq < 9"),
        ("seq < 5", 'seq < 9 or key = "a"'),
        ('seq < 5 or key = "a"', 'key = "a" or seq < 9'),
        ('key = "a" and (seq < 5 or time < 5)', 'key = "a"'),
        ('key = "a" and (seq < 5 or seq < 6)', "seq < 9"),
        ('key = "a"', "seq < 10"),  # all of it is older than the GC event at 10
        ("price > 3", "time < 8"),
    ],
)
def test_proofs_that_are_found(old: str, new: str) -> None:
    assert covers(parse(new), parse(old), 10, 7)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seq < 9", "seq < 5"),
        ('key prefix "a"', 'key prefix "ab"'),
        ('topic = "/a/*"', 'topic = "/a/b"'),
        ('topic = "/a/*"', 'topic = "/a/*/c"'),
        ("price > 5", "price > 6"),
        ("price != 5", "price < 9"),
        ("price > 5", "year > 5"),
        ('key = "a"', 'key = "a" and price > 5'),
    ],
)
def test_what_is_not_true_is_not_proven(old: str, new: str) -> None:
    assert not covers(parse(new), parse(old), 10, 7)


def nested(word: str, name: str, depth: int) -> str:
    text = f"{name} = 0"
    for number in range(1, depth):
        text = f"{name}{number} = {number} {word} ({text})"
    return text


def alternating(words: tuple[str, str], name: str, depth: int) -> str:
    text = f"{name} = 0"
    for number in range(1, depth):
        text = f"{name}{number} = {number} {words[number % 2]} ({text})"
    return text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (nested("and", "a", 32), nested("or", "b", 32)),
        (nested("or", "a", 32), nested("and", "b", 32)),
        (alternating(("and", "or"), "a", 32), alternating(("or", "and"), "b", 32)),
        (alternating(("or", "and"), "a", 32), alternating(("or", "and"), "a", 32)),
    ],
)
def test_looking_for_a_proof_takes_no_longer_than_its_text_allows(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such GC event would otherwise stop every proxy that keeps the stream."""
    steps = 0
    real = proof.implies

    def counted(*arguments: Predicate) -> bool:
        nonlocal steps
        steps += 1
        assert steps < 200_000
        return real(*arguments)

    monkeypatch.setattr(proof, "implies", counted)
    proof.covers(parse(new), parse(old), 5, 5)
    assert steps > 1


@given(predicates, placed(1, 0, gaps=False))
def test_brackets_that_change_nothing_change_nothing(
    predicate: Predicate, found: list[Event]
) -> None:
    for event in found:
        assert matches(predicate, event) == matches(proof.flat(predicate), event)
