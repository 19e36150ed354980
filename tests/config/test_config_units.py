"""Durations and sizes, read and shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.config.units import duration, show_duration, show_size, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250us", 0.00025),
        ("250ms", 0.25),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("10 min", 600.0),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("7d", 604800.0),
        ("2w", 1209600.0),
        ("0s", 0.0),
        ("0.1ms", 0.0001),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "-5s",
        "5 parsecs",
        "5S",
        "5s ",
        " 5s",
        "1e3s",
        "5s5s",
        ".5s",
        "\u0665s",
        "9" * 31 + "s",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1.5KiB", 1536),
        ("64MiB", 64 * 1024**2),
        ("1GB", 10**9),
        ("1.1MB", 1_100_000),
        ("50M", 50_000_000),
        ("2Ti", 2 * 1024**4),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1MiB", "1.5B", "0.3KiB", "1XB", "1iB", "1MiB/s", "1e3"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (5.0, "5s"), (0.05, "50ms"), (90, "90s"), (600, "10min"), (604800, "7d")],
)
def test_durations_are_shown_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_an_endless_duration_is_shown_as_never() -> None:
    assert show_duration(math.inf) == "never"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0B"), (1000, "1000B"), (65536, "64KiB"), (3 * 1024**3, "3GiB")]
)
def test_sizes_are_shown_in_the_largest_whole_unit(count: int, text: str) -> None:
    assert show_size(count) == text


@given(st.integers(0, 10**18))
def test_a_size_that_is_shown_reads_as_itself(count: int) -> None:
    assert size(show_size(count)) == count


@given(st.integers(0, 10**12))
def test_a_duration_that_is_shown_reads_as_itself(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert duration(show_duration(seconds)) == seconds
