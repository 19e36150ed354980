"""Which parts of two states differ."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pytest

from sirius.testing._handler_states import differences


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Number(int):
    """Has attributes, and is more than these."""


@dataclass
class Film:
    title: str
    cast: Any = None


def cycle() -> Plain:
    one = Plain(name="one")
    one.me = one  # type: ignore[attr-defined]
    return one


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}),
        (nan, float("nan")),
        ({"a": nan}, {"a": float("nan")}),
        (Plain(a=1), Plain(a=1)),
        ([Film("a", Plain(b=1))], [Film("a", Plain(b=1))]),
        (np.arange(3), np.arange(3)),
        ({"a": np.arange(3)}, {"a": np.arange(3)}),
        (cycle(), cycle()),
        ({1, 2}, {2, 1}),
    ],
)
def test_equal_states_do_not_differ(here: Any, there: Any) -> None:
    assert list(differences(here, there, "state")) == []


@pytest.mark.parametrize(
    ("here", "there", "path", "mine", "theirs"),
    [
        (1, 2, "state", "1", "2"),
        (1, "1", "state", "1", "'1'"),
        ({"a": 1}, {}, "state['a']", "1", "nothing"),
        ({}, {"a": {"b": 1}}, "state['a']", "nothing", "{'b': 1}"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "state['a']['b'][1]", "2", "3"),
        ([1], [1, 2], "state[1]", "nothing", "2"),
        (deque([1]), deque([2]), "state[0]", "1", "2"),
        ({1, 2}, {1}, "state member 2", "2", "nothing"),
        (frozenset(), frozenset("a"), "state member 'a'", "nothing", "'a'"),
        (Plain(a=1), Plain(a=2), "state.a", "1", "2"),
        ([Film("a")], [Film("b")], "state[0].title", "'a'", "'b'"),
        (Number(1), Number(2), "state", "1", "2"),
        (b"abc", b"abd", "state", "b'abc'", "b'abd'"),
        (OrderedDict(a=1), {"a": 2}, "state", "OrderedDict({'a': 1})", "{'a': 2}"),
        (np.arange(2), np.zeros(2), "state", "array([0, 1])", "array([0., 0.])"),
    ],
)
def test_the_smallest_part_that_differs_is_named(
    here: Any, there: Any, path: str, mine: str, theirs: str
) -> None:
    ((*found,),) = differences(here, there, "state")
    # How an OrderedDict looks depends on the version of Python.
    found[1] = found[1].replace("[('a', 1)]", "{'a': 1}")
    assert found == [path, mine, theirs]


def test_values_are_shown_in_less_than_a_line() -> None:
    ((_, mine, theirs),) = differences("x" * 1000, b"y" * 1000, "state")
    assert len(mine) <= 60
    assert len(theirs) <= 60
