"""A film guide that never was: thousands of films with title, year, director and cast, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

_FIRST: Final = """Ada Akira Alma Amara Anton Beatriz Boris Carla Chiara Dario Elena Emil Esther Farida Felix Greta Hugo
Imani Ines Ivan Jonas Kenji Lars Leila Luisa Magda Marco Mei Nadia Nils Olga Omar Paula Petra Rosa Samir Tara Tomas Vera
Yusuf""".split()
_LAST: Final = """Almeida Andersen Aoki Barros Becker Costa Duval Eriksen Ferrari Fontaine Haddad Hansen Ivanova Jansen
Kapoor Keller Kowalski Lang Lopez Mancini Moreau Nakamura Novak Okafor Olsen Petrov Quint Rossi Sato Silva Sokolov
Tanaka Torres Varga Vogel Weber Weiss Yilmaz Zhang Zimmer""".split()
_ADJECTIVES: Final = """Amber Blind Borrowed Broken Burning Crooked Distant Electric Empty Endless Fallen Forgotten
Frozen Golden Hidden Hollow Last Lonely Lost Midnight Painted Quiet Restless Scarlet Secret Seventh Silent Silver
Stolen Sudden Vanishing Velvet Wandering White Wild""".split()
_NOUNS: Final = """Acrobat Afternoon Bridge Captain Cathedral City Clockmaker Companion Country Daughter Detective Dream
Echo Express Garden Harbour Horizon Hour Island Journey Kingdom Letter Lighthouse Machine Mirror Mountain Orchard
Orchestra Passenger Promise River Shadow Stranger Summer Theatre Train Voyage Widow Winter""".split()
_GENRES: Final = (
    "comedy",
    "crime",
    "documentary",
    "drama",
    "mystery",
    "romance",
    "science fiction",
)
_FIRST_YEAR: Final = 1920
_LAST_YEAR: Final = 2026


def films(count: int, seed: int = 1942) -> Iterator[tuple[str, bytes]]:
    """Yield keys and bodies of so many films."""
    rng = random.Random(seed)
    for number in range(count):
        yield key_of(number), json.dumps(_film(rng)).encode()


def key_of(number: int) -> str:
    """Return the key of a film."""
    return f"film/{number:05d}"


def _film(rng: random.Random) -> dict[str, Any]:
    return {
        "title": _title(rng),
        "year": rng.randint(_FIRST_YEAR, _LAST_YEAR),
        "genre": rng.choice(_GENRES),
        "director": _person(rng),
        "cast": [_person(rng) for _ in range(rng.randint(2, 5))],
        "rating": round(rng.uniform(3, 9.5), 1),
    }


def _title(rng: random.Random) -> str:
    adjective, noun, other = rng.choice(_ADJECTIVES), rng.choice(_NOUNS), rng.choice(_NOUNS)
    forms = (f"The {adjective} {noun}", f"{adjective} {noun}", f"The {noun} and the {other}")
    return rng.choice(forms)


def _person(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
