"""Random histories, and logs that were written from them. Not a test itself."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Log, LogConfig, Op, Update
from tests.wal.bookkeeping import NOW_US, ROOT, SMALL, Issued, State

History = list[Issued]

POLICIES = st.builds(
    CompactionPolicy,
    dead_fraction_min=st.sampled_from([0.0, 0.25, 0.6, 1.0]),
    upto=st.none() | st.integers(1, 60).map(Seq),
    drop_deletes_upto=st.sampled_from([0, 10, 30, 1000]).map(Seq),
    drop_deletes_before_us=st.none() | st.integers(0, 60).map(lambda n: NOW_US + n),
)


def entries(keys: int = 6) -> st.SearchStrategy[Issued]:
    """Mostly PUTs and DELETEs of few keys, so that much is superseded; some control entries."""
    key = st.integers(0, keys - 1).map("key{}".format)
    put = st.tuples(st.just(Op.PUT), key, st.binary(max_size=60))
    delete = st.tuples(st.just(Op.DELETE), key, st.just(b""))
    noop = st.tuples(st.just(Op.NOOP), st.just(""), st.just(b""))
    membership = st.tuples(st.just(Op.MEMBERSHIP), st.just("voters"), st.binary(max_size=9))
    return st.one_of(put, put, delete, delete, noop, membership)


def random_history(rng: random.Random, count: int, keys: int) -> History:
    return [_random_entry(rng, number, keys) for number in range(count)]


def _random_entry(rng: random.Random, number: int, keys: int) -> Issued:
    drawn, key = rng.random(), f"key{rng.randrange(keys)}"
    if drawn < 0.55:
        return (Op.PUT, key, b"%d " % number * rng.randint(1, 12))
    if drawn < 0.92:
        return (Op.DELETE, key, b"")
    return (Op.NOOP, "", b"") if drawn < 0.97 else (Op.MEMBERSHIP, "voters", b"%d" % number)


def random_policy(rng: random.Random, last: int) -> CompactionPolicy:
    return CompactionPolicy(
        dead_fraction_min=rng.choice([0.0, 0.25, 0.5, 0.9]),
        upto=rng.choice([None, None, Seq(rng.randint(1, last))]),
        drop_deletes_upto=Seq(rng.choice([0, rng.randint(0, last), last])),
        drop_deletes_before_us=rng.choice([None, None, NOW_US + rng.randint(0, last)]),
    )


class Ticking:
    """A clock that gives each block of a log its own time, one microsecond after the other."""

    def __init__(self) -> None:
        self.now_us = NOW_US

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


def updates(history: Iterable[Issued]) -> list[Update]:
    return [Update(op, key.encode(), body) for op, key, body in history]


def write(log: Log, history: Sequence[Issued], rng: random.Random) -> None:
    """Append a history in blocks of one to four entries, flushed now and then."""
    at = 0
    while at < len(history):
        size = rng.choice([1, 1, 2, 4])
        log.write(updates(history[at : at + size]))
        at += size
        if rng.random() < 0.5:
            log.flush()
    log.flush()


def written(
    history: Sequence[Issued],
    *,
    config: LogConfig = SMALL,
    rng: random.Random | None = None,
    fs: MemoryFileSystem | None = None,
) -> Log:
    """Return an open log in memory that holds a history."""
    log = Log.open(ROOT, config, fs=fs or MemoryFileSystem(), now_us=Ticking())
    write(log, history, rng or random.Random(len(history)))
    return log


def log_of_state(state: State) -> Log:
    """Return a log, built by another path, that stands for a state."""
    config = replace(SMALL, segment_bytes_max=100_000)
    return written([(Op.PUT, key, body) for key, body in sorted(state.items())], config=config)
