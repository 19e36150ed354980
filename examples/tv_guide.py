"""A TV guide with indexes of its own: what is on now, what comes next on a channel, titles by their beginning.

A cache of key and value answers one question. An application has others, and with Sirius it may keep whatever
structure answers them: here two sorted ones of `sortedcontainers`, brought up to date by each update. They live in this
process, so a question costs microseconds and needs no network.

Run it: `python examples/tv_guide.py` (needs `pip install sortedcontainers`).
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedSet

from sirius import RequestHandler, Sirius, SiriusConfig, SiriusResult

CHANNELS = tuple(f"channel-{number}" for number in range(1, 41))
DAY_MIN = 24 * 60


class Showing(NamedTuple):
    """A programme on a channel, in minutes since midnight."""

    channel: str
    start: int
    end: int
    title: str


class Guide(RequestHandler):
    """Showings by key, and two indexes on them.

    The keys are `showing/{id}`, the bodies JSON. An update that makes no sense is rejected, on every node alike; what
    the key held before goes, as it would after compaction.
    """

    def __init__(self) -> None:
        self._showings: dict[str, Showing] = {}
        self._schedules: dict[str, SortedDict] = {}
        """For each channel its showings by when they begin."""
        self._titles = SortedSet()
        """Pairs of a title in small letters and a key."""

    # ------------------------------------------------------------------ what Sirius calls

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self._remove(key)
        try:
            showing = Showing(**json.loads(body))
        except (ValueError, TypeError) as error:
            return SiriusResult.rejected(f"{key} is no showing: {error}")
        self._showings[key] = showing
        schedule = self._schedules.setdefault(showing.channel, SortedDict())
        schedule[showing.start, key] = showing
        self._titles.add((showing.title.lower(), key))
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self._remove(key)
        return SiriusResult.none()

    def handle_get(self, key: str) -> SiriusResult:
        showing = self._showings.get(key)
        return SiriusResult.none() if showing is None else SiriusResult.some(showing)

    def _remove(self, key: str) -> None:
        if (old := self._showings.pop(key, None)) is not None:
            del self._schedules[old.channel][old.start, key]
            self._titles.discard((old.title.lower(), key))

    # ------------------------------------------------------------------ what the application asks

    def on_now(self, minute: int) -> list[Showing]:
        """What every channel shows at a minute of the day."""
        found = []
        for schedule in self._schedules.values():
            at = schedule.bisect_right((minute, "\U0010ffff")) - 1
            if at >= 0 and (showing := schedule.peekitem(at)[1]).end > minute:
                found.append(showing)
        return found

    def next_on(self, channel: str, minute: int, count: int) -> list[Showing]:
        """What begins next on a channel."""
        schedule = self._schedules.get(channel, SortedDict())
        at = schedule.bisect_left((minute, ""))
        return list(schedule.values()[at : at + count])

    def titles(self, beginning: str, count: int) -> list[str]:
        """Titles by their beginning, in order."""
        low = beginning.lower()
        keys = self._titles.irange((low, ""), (low + "\U0010ffff", ""))
        found = dict.fromkeys(self._showings[key].title for _, key in keys)
        return list(found)[:count]

    def __len__(self) -> int:
        return len(self._showings)


def programme(seed: int) -> dict[str, bytes]:
    """Make up a day of all channels."""
    rng = random.Random(seed)
    words = "Night Day River City Star Garden Winter Train Island Letter House Moon".split()
    found: dict[str, bytes] = {}
    for channel in CHANNELS:
        start = 0
        while start < DAY_MIN:
            end = min(DAY_MIN, start + rng.choice((25, 30, 45, 60, 90, 120)))
            title = f"{rng.choice(words)} of the {rng.choice(words)}"
            showing = Showing(channel, start, end, title)
            found[f"showing/{len(found):05}"] = json.dumps(showing._asdict()).encode()
            start = end
    return found


def main(folder: str) -> None:
    guide = Guide()
    with Sirius(guide, SiriusConfig(data=folder)) as sirius:
        acks = [sirius.enqueue_put(key, body) for key, body in programme(seed=1).items()]
        for ack in acks:
            ack.result(timeout=30)
        print(f"{len(guide)} showings on {len(CHANNELS)} channels")

        refused = sirius.enqueue_put("showing/00000", b'{"channel": "channel-1"}').result(
            timeout=30
        )
        print("a showing without a time is rejected:", refused.error)

        evening = 20 * 60 + 15
        began = time.perf_counter()
        now = guide.on_now(evening)
        took_us = (time.perf_counter() - began) * 1e6
        print(f"at 20:15, on all {len(now)} channels ({took_us:.0f} µs):")
        for showing in now[:3]:
            print(f"  {showing.channel:10} {showing.title}")
        print("next on channel-7:", [s.title for s in guide.next_on("channel-7", evening, 3)])
        print('titles that begin with "mo":', guide.titles("mo", 3))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory(prefix="sirius-guide-") as scratch:
            main(scratch)
