"""A request handler, and the test that it deserves. Copy this file, and put your own handler into it.

Run it with `pytest examples/test_films_handler.py`; more clusters with `--sirius-seeds 50`; and when one of them fails,
that one alone with `--sirius-seed 17`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from sirius.handler import RequestHandler, SiriusResult
from sirius.testing import check_handler
from sirius.testing.handlers import Drawn


class Films(RequestHandler):
    """Films by key, and the keys of each year: two structures that have to fit each other."""

    def __init__(self) -> None:
        self.films: dict[str, dict[str, object]] = {}
        self.keys_of_year: dict[int, set[str]] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        # Whatever was there goes first: also if we reject, because compaction keeps this update alone.
        self._forget(key)
        try:
            film = json.loads(body)
            year = int(film["year"])
        except (ValueError, KeyError, TypeError):
            return SiriusResult.rejected("a film is a JSON object with a year")
        self.films[key] = film
        self.keys_of_year.setdefault(year, set()).add(key)
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self._forget(key)
        return SiriusResult.none()

    def handle_get(self, key: str) -> SiriusResult:
        return SiriusResult.some(self.films[key]) if key in self.films else SiriusResult.none()

    def _forget(self, key: str) -> None:
        film = self.films.pop(key, None)
        if film is not None:
            year = int(str(film["year"]))
            self.keys_of_year[year].discard(key)
            if not self.keys_of_year[year]:
                del self.keys_of_year[year]


def film(rng: random.Random) -> Drawn:
    """Draw an update as the application makes them. Few keys, so that they are overwritten and deleted."""
    key = f"film/{rng.randrange(20)}"
    kind = rng.random()
    if kind < 0.2:
        return "DELETE", key
    if kind < 0.3:
        return "PUT", key, b"no film at all"
    return (
        "PUT",
        key,
        json.dumps({"title": "Casablanca", "year": rng.randrange(1920, 1960)}).encode(),
    )


def test_films_are_the_same_on_all_nodes(sirius_handler_check: Callable[..., object]) -> None:
    sirius_handler_check(Films, updates=film)


def test_the_same_without_the_plugin() -> None:
    check_handler(Films, updates=film, seeds=[7])
