"""Logs to measure with: the paper's workload, 24-byte keys and 179-byte bodies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from sirius.wal import Durability, Log, LogConfig, Op, Update

KEY_BYTES = 24
BODY_BYTES = 179
DELETES = 0.05


def updates(
    count: int, keys: int, *, seed: int = 1, body_bytes: int = BODY_BYTES, deletes: float = 0.0
) -> Iterator[Update]:
    """Make up updates of `keys` keys, chosen evenly."""
    rng = random.Random(seed)
    pool = rng.randbytes(1 << 20)
    names = [b"title/%018d" % key for key in range(keys)]
    for _ in range(count):
        key = names[int(rng.random() * keys)]
        if deletes and rng.random() < deletes:
            yield Update(Op.DELETE, key)
        else:
            at = int(rng.random() * (len(pool) - body_bytes))
            yield Update(Op.PUT, key, pool[at : at + body_bytes])


def mixed(count: int, keys: int, *, seed: int = 1) -> Iterator[Update]:
    """Make up puts whose keys and bodies have many lengths; bodies are as long as elsewhere on average."""
    rng = random.Random(seed)
    pool = rng.randbytes(1 << 20)
    for _ in range(count):
        size = int(rng.random() * (2 * BODY_BYTES + 1))
        at = int(rng.random() * (len(pool) - size))
        yield Update(Op.PUT, b"title/%d" % int(keys ** rng.random()), pool[at : at + size])


def batched(source: Iterator[Update], size: int) -> Iterator[list[Update]]:
    """Cut a stream into lists."""
    while batch := list(islice(source, size)):
        yield batch


def make_log(path: str, source: Iterator[Update], *, block: int, **settings: int) -> None:
    """Write a log in blocks of so many records, without waiting for the disk."""
    config = LogConfig(durability=Durability.OS, reserve_bytes=0, **settings)  # type: ignore[arg-type]
    with Log.open(path, config) as log:
        for batch in batched(source, block):
            log.write(batch)
