"""What a power loss may leave, against brute force, and what must hold for every program."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.testing import MemoryFileSystem
from tests.testing.disks import append, assert_same, create, endings, trees, with_files

# --- power loss: brute-force twins


def tails_by_brute_force(durable: bytes, pieces: list[bytes]) -> set[bytes]:
    starts = [len(durable) + sum(map(len, pieces[:at])) for at in range(len(pieces))]
    results = {durable}
    for count in range(1, len(pieces) + 1):
        for kept in itertools.combinations(range(len(pieces)), count):
            last = pieces[kept[-1]]
            for torn in torn_by_brute_force(last, starts[kept[-1]]):
                content = durable
                for at in kept:
                    piece = torn if at == kept[-1] else pieces[at]
                    content = content.ljust(starts[at], b"\0") + piece
                results.add(content)
    return results


def torn_by_brute_force(data: bytes, start: int) -> Iterator[bytes]:
    yield data
    yield bytes(len(data))
    for kept in range(1, len(data)):
        if (start + kept) % 512 == 0 or kept == len(data) // 2:
            yield data[:kept]
            yield data[:kept].ljust(len(data), b"\0")


@given(
    st.integers(0, 600), st.lists(st.integers(1, 1200), min_size=1, max_size=4), st.integers(0, 9)
)
def test_file_outcomes_match_brute_force(durable: int, sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.randbytes(size) for size in sizes]
    fs = with_files(a=b"d" * durable)
    append(fs, "a", *pieces)
    found = endings(fs, "a")
    assert len(found) == len(set(found))
    assert set(found) == tails_by_brute_force(b"d" * durable, pieces)


NameStep = tuple[str, str, str]


def apply_by_brute_force(names: dict[str, str], step: NameStep) -> dict[str, str] | None:
    """One step on name -> label; a label names the file that the step is about."""
    kind, label, path = step
    source, _, target = path.partition(" ")
    if kind == "create":
        return None if source in names else names | {source: label}
    if names.get(source) != label:
        return None
    rest = {name: held for name, held in names.items() if name != source}
    return rest if kind == "remove" else rest | {target: label}


def names_by_brute_force(steps: list[NameStep]) -> list[dict[str, str]]:
    results: list[dict[str, str]] = []
    for kept in itertools.product((True, False), repeat=len(steps)):
        names: dict[str, str] | None = {}
        for step in itertools.compress(steps, kept):
            names = None if names is None else apply_by_brute_force(names, step)
        if names is not None and names not in results:
            results.append(names)
    return results


name_steps = st.tuples(
    st.sampled_from(["create", "create", "remove", "replace"]),
    st.sampled_from("abc"),
    st.sampled_from("abc"),
)


@given(st.lists(name_steps, max_size=9))
def test_name_outcomes_match_brute_force(wishes: list[tuple[str, str, str]]) -> None:
    fs = MemoryFileSystem()
    steps: list[NameStep] = []
    for at, (kind, name, other) in enumerate(wishes):
        if fs.exists(name) != (kind != "create") or (kind == "replace" and name == other):
            continue
        label = fs.read_bytes(name).decode() if fs.exists(name) else str(at)
        if kind == "create":
            create(fs, name, label.encode())
        elif kind == "remove":
            fs.remove(name)
        else:
            fs.replace(name, other)
        steps.append((kind, label, f"{name} {other}" if kind == "replace" else name))
    expected = names_by_brute_force(steps)
    found = [{name: data.decode() for name, data in tree.items()} for tree in trees(fs)]
    assert_same((sorted(f.items()) for f in found), (sorted(e.items()) for e in expected))


# --- power loss: what must hold for every program


class Program:
    """Runs steps on a disk and remembers, on its own, what they promise."""

    PATHS = tuple(f"{folder}/{name}" for folder in "pq" for name in "abc")

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        for folder in "pq":
            self.fs.mkdir(folder)
        self.fs.sync_dir("")
        self.known: dict[str, int | None] = dict.fromkeys(self.PATHS)
        self.synced: dict[int, bytes] = {}
        self.written: dict[int, dict[int, set[int]]] = {}
        self.sizes: dict[int, int] = {}
        self.count = 0

    def run(self, step: tuple[str, str, str, int]) -> None:
        kind, path, other, size = step
        try:
            getattr(self, kind)(path, other, size)
        except OSError:
            return

    def create(self, path: str, other: str, size: int) -> None:
        self.fs.open(path, "x").close()
        self.known.pop(path, None)

    def remove(self, path: str, other: str, size: int) -> None:
        self.fs.remove(path)
        self.known.pop(path, None)

    def replace(self, path: str, other: str, size: int) -> None:
        self.fs.replace(path, other)
        if path != other:
            self.known.pop(path, None)
            self.known.pop(other, None)

    def append(self, path: str, other: str, size: int) -> None:
        file, number = self.fs.open(path, "a"), self.fs.identity(path)
        self.count = self.count % 255 + 1
        places = self.written.setdefault(number, {})
        for at in range(file.size(), file.size() + size):
            places.setdefault(at, set()).add(self.count)
        file.append([bytes([self.count]) * size])
        self.sizes[number] = max(self.sizes.get(number, 0), file.size())

    def truncate(self, path: str, other: str, size: int) -> None:
        file, number = self.fs.open(path, "a"), self.fs.identity(path)
        file.truncate(min(size, file.size()))
        self.synced[number] = self.synced.get(number, b"")[:size]

    def sync(self, path: str, other: str, size: int) -> None:
        file = self.fs.open(path, "r")
        file.sync()
        self.synced[self.fs.identity(path)] = file.read(0, file.size())

    def sync_dir(self, path: str, other: str, size: int) -> None:
        folder = path[0]
        self.fs.sync_dir(folder)
        for place in self.PATHS:
            if place.startswith(folder):
                held = self.fs.identity(place) if self.fs.exists(place) else None
                self.known[place] = held

    def check(self, state: MemoryFileSystem) -> None:
        for path, number in self.known.items():
            assert state.exists(path) == (number is not None), path
            if number is not None:
                assert state.identity(path) == number
                synced = self.synced.get(number, b"")
                assert state.read_bytes(path)[: len(synced)] == synced
        for path, content in state.tree().items():
            self.check_only_written(state.identity(path), content)

    def check_only_written(self, number: int, content: bytes) -> None:
        assert len(content) <= self.sizes.get(number, 0)
        for at, byte in enumerate(content):
            assert byte == 0 or byte in self.written[number].get(at, ())


program_steps = st.tuples(
    st.sampled_from("create create append append sync sync_dir replace remove truncate".split()),
    st.sampled_from(Program.PATHS),
    st.sampled_from(Program.PATHS),
    st.integers(1, 6),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(program_steps, max_size=30), st.integers(0, 99))
def test_what_was_synced_survives_and_nothing_is_invented(
    steps: list[tuple[str, str, str, int]], seed: int
) -> None:
    program = Program()
    for step in steps:
        program.run(step)
    states = list(program.fs.crash_states(40, seed=seed))
    assert states[0].tree() == program.fs.tree()
    for state in states:
        program.check(state)
        assert [s.tree() for s in state.crash_states()] == [state.tree()]
    seen = [identified(state) for state in states]
    assert len(seen) == len({repr(item) for item in seen})


def identified(fs: MemoryFileSystem) -> list[tuple[str, int, bytes]]:
    return [(path, fs.identity(path), data) for path, data in fs.tree().items()]
