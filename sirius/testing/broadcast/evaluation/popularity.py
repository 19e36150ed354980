"""The workload of Sprinkler's section 5.4: keys that are invalidated, and new keys that come in.

In every tick a Poisson number of keys is added, each at a rank drawn from a Zeta distribution: it may become popular at
once, and whoever stood there or behind moves one place down. Then a Poisson number of keys is invalidated, drawn from
a Zipf distribution over the ranks of all keys that there are. Both have the same skew.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sirius.broadcast.columns import AnyColumn, Ints

KEYS_PER_TICK = 10.0
"""λ of new keys, fixed in the paper."""


class Ranking:
    """Keys in the order of their popularity. A key is a number, from 0 on in the order in which they were added."""

    def __init__(self, skew: float, rng: np.random.Generator, keys_max: int, keys: int = 0) -> None:
        self._skew, self._rng = skew, rng
        self._shares = np.cumsum(np.arange(1, keys_max + 1, dtype=np.float64) ** -skew)
        self._ranked = list(range(keys))

    def __len__(self) -> int:
        return len(self._ranked)

    def add(self, count: int) -> None:
        """Add keys. One place is O(keys), quickly."""
        for rank in self._rng.zipf(self._skew, count).tolist():
            self._ranked.insert(rank - 1, len(self._ranked))

    def draw(self, count: int) -> Ints:
        """Draw keys by their popularity."""
        shares = self._shares[: len(self._ranked)]
        ranks = np.searchsorted(shares, self._rng.random(count) * shares[-1])
        return np.array([self._ranked[rank] for rank in ranks.tolist()], np.int64)


def invalidations(
    skew: float, per_tick: float, ticks: int, rng: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Yield for each tick the keys that are invalidated, and how many ticks ago each was added."""
    born: list[int] = []
    ranking = Ranking(skew, rng, int(2 * KEYS_PER_TICK * ticks) + 1000)
    for tick in range(ticks):
        ranking.add(int(rng.poisson(KEYS_PER_TICK)) or int(tick == 0))
        born += [tick] * (len(ranking) - len(born))
        keys = ranking.draw(int(rng.poisson(per_tick)))
        ages: AnyColumn = tick - np.array([born[key] for key in keys.tolist()], np.int64)
        yield keys, ages


def growing_keys(
    skew: float, events: int, rng: np.random.Generator, keys: int, batch: int = 10_000
) -> Iterator[bytes]:
    """Yield batches of packed keys out of a set to which a key is added for every ten invalidations (Figure 10b)."""
    ranking = Ranking(skew, rng, keys + events, keys)
    for _ in range(0, events, batch):
        ranking.add(batch // 11)
        yield ranking.draw(batch - batch // 11).astype("<u8").tobytes()
