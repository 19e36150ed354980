"""A clock that stands still, a truth with versions, and a sink that writes down what it is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection

PATIENCE_S = 60.0


class Clock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Truth:
    """What a cache is a cache of: each key has a version, which only rises. It counts who asks."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.asked: list[str] = []

    def write(self, key: str) -> int:
        self.versions[key] += 1
        return self.versions[key]

    def load(self, key: str) -> int:
        self.asked.append(key)
        return self.versions[key]


class Recorder:
    """A sink. `told` has everything in order; `refusing` makes it raise."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.keys: list[str] = []
        self.ages: list[float] = []
        self.refusing = 0
        self.position: int | None = None
        self._changed = threading.Condition()

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        self._take("invalidated", seq, keys)

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        self._take("alive", seq)
        self.ages.append(age_s)

    def gap(self, seq: int) -> None:
        self._take("gap", seq)

    def _take(self, what: str, seq: int, keys: Collection[str] = ()) -> None:
        with self._changed:
            if self.refusing:
                self.refusing -= 1
                self._changed.notify_all()
                raise RuntimeError("not now")
            self.told.append((what, seq))
            self.keys.extend(keys)
            if what != "alive":
                self.position = seq
            self._changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), f"it was told {self.told}"

    def seqs(self, what: str) -> list[int]:
        return [seq for name, seq in self.told if name == what]
