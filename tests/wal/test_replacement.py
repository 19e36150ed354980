"""Replacing damaged segments by blocks from a peer: exactly the range, all or nothing, and no delete undone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from sirius.errors import InvalidRecord, OutOfOrder, RangeUnavailable, ResyncRequired, UsageError
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, Log, LogConfig, Op, State, encode
from sirius.wal.record import Update
from tests.wal.crashlab import SOAK

CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4, retire_after_s=0.0)
NOW_US = 1_700_000_000_000_000

Change = tuple[Op, str, bytes]


def open_log(fs: MemoryFileSystem | None = None, config: LogConfig = CONFIG) -> Log:
    return Log.open("log", config, fs=fs or MemoryFileSystem(), now_us=lambda: NOW_US)


def filled(changes: Iterable[Change], fs: MemoryFileSystem | None = None) -> Log:
    log = open_log(fs)
    for op, key, body in changes:
        log.write([Update(op, key.encode(), body)])
        log.flush()
    return log


def puts(count: int) -> list[Change]:
    return [(Op.PUT, f"key/{n}", b"body" * n) for n in range(1, count + 1)]


def state(log: Log) -> dict[str, bytes]:
    return state_of((record.op, record.key, record.body) for record in log.records())


def state_of(changes: Iterable[Change]) -> dict[str, bytes]:
    live: dict[str, bytes] = {}
    for op, key, body in changes:
        if op == Op.PUT:
            live[key] = body
        else:
            live.pop(key, None)
    return live


def drop(log: Log, upto: int) -> None:
    """Compact until nothing more goes; deletes up to a number may go too."""
    policy = CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=Seq(upto))
    for _ in range(3):
        log.compact(policy)


def damage(log: Log, *positions: int) -> None:
    for position in positions:
        log.quarantine(log.manifest.segments[position].id, "a test")


# ---------------------------------------------------------------------- good ones


def test_a_quarantined_segment_gets_the_peers_blocks() -> None:
    fs = MemoryFileSystem()
    log, peer = filled(puts(14), fs), filled(puts(14))
    damage(log, 1)
    with pytest.raises(RangeUnavailable):
        list(log.records())
    log.replace(5, 8, peer.blocks(5, 8))
    assert list(log.records()) == list(peer.records())
    assert [info.state for info in log.manifest.segments[:3]] == [State.SEALED] * 3
    log.close()
    assert list(open_log(fs).records()) == list(peer.records())


def test_neighbours_are_replaced_together_and_split_anew() -> None:
    fs = MemoryFileSystem()
    log, peer = filled(puts(14), fs), filled(puts(14))
    damage(log, 0, 1, 2)
    wide = [encode(1, [Update(op, k.encode(), b) for op, k, b in puts(2)], NOW_US)]
    wide += [encode(n, [Update(Op.PUT, b"key/%d" % n, b"body" * n)], NOW_US) for n in range(3, 13)]
    log.replace(1, 12, iter(wide))
    assert [info.records for info in log.manifest.segments[:-1]] == [4, 4, 4]
    assert list(log.records()) == list(peer.records())
    assert log.next_seq == 15


def test_segments_are_split_by_bytes_too() -> None:
    fs = MemoryFileSystem()
    filled(puts(14), fs).close()
    with open_log(fs, replace(CONFIG, segment_records_max=99, segment_bytes_max=500)) as log:
        log.replace(1, 12, list(log.blocks(1, 12)))
        assert len(log.manifest.segments) > 6
        assert all(info.bytes <= 500 + 48 for info in log.manifest.segments if info.records > 1)
        assert state(log) == state_of(puts(14))


def test_a_block_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = filled(puts(14))
    updates = [Update(op, key.encode(), body) for op, key, body in puts(8)]
    log.replace(1, 8, [encode(1, updates, NOW_US)])
    assert [info.records for info in log.manifest.segments[:-1]] == [8, 4]
    assert state(log) == state_of(puts(14))


def test_whoever_reads_goes_on_with_what_was_there() -> None:
    log, peer = filled(puts(14)), filled(puts(14))
    with log.snapshot() as snapshot:
        log.replace(5, 8, peer.blocks(5, 8))
        assert list(snapshot.records()) == list(peer.records())
    before = log.manifest.segments
    log.put("key/15", b"")
    log.flush()
    assert log.manifest.segments == before


# ---------------------------------------------------------------------- bad ones


def recoded(block: Block, first: int) -> Block:
    return encode(first, [Update(Op.PUT, b"k", b"")] * block.count, NOW_US)


BAD: dict[str, Callable[[list[Block]], list[Block]]] = {
    "none": lambda _: [],
    "a gap": lambda blocks: [blocks[0], *blocks[2:]],
    "the end missing": lambda blocks: blocks[:-1],
    "the beginning missing": lambda blocks: blocks[1:],
    "wrong order": lambda blocks: blocks[::-1],
    "twice": lambda blocks: [*blocks, blocks[-1]],
    "too many": lambda blocks: [*blocks, recoded(blocks[0], blocks[-1].last + 1)],
    "beyond the end": lambda blocks: [*blocks[:-1], Block.hole(blocks[-1].first, 99)],
}


@pytest.mark.parametrize("how", BAD)
def test_blocks_that_do_not_cover_exactly_the_range_change_nothing(how: str) -> None:
    fs = MemoryFileSystem()
    log, peer = filled(puts(14), fs), filled(puts(14))
    damage(log, 1)
    before, manifest = fs.tree(), log.manifest
    with pytest.raises(OutOfOrder):
        log.replace(5, 8, BAD[how](list(peer.blocks(5, 8))))
    assert fs.tree() == before
    assert log.manifest.segments == manifest.segments


@pytest.mark.parametrize("offset", [0, 20, 70, -1])
def test_damaged_blocks_change_nothing(offset: int) -> None:
    fs = MemoryFileSystem()
    log, peer = filled(puts(14), fs), filled(puts(14))
    before, blocks = fs.tree(), list(peer.blocks(5, 8))
    raw = bytearray(blocks[2].raw)
    raw[offset] ^= 1
    blocks[2] = Block(bytes(raw), blocks[2].header)
    with pytest.raises(InvalidRecord):
        log.replace(5, 8, blocks)
    assert fs.tree() == before


@pytest.mark.parametrize(
    "span", [(5, 7), (6, 8), (4, 8), (5, 9), (13, 14), (9, 14), (8, 5), (0, 4)]
)
def test_a_range_that_is_not_made_of_finished_segments_is_refused(span: tuple[int, int]) -> None:
    fs = MemoryFileSystem()
    log, peer = filled(puts(14), fs), filled(puts(14))
    before = fs.tree()
    with pytest.raises(UsageError, match="exactly"):
        log.replace(*span, peer.blocks(max(1, span[0]), span[1]))
    assert fs.tree() == before


# ---------------------------------------------------------------------- deletes


def with_a_delete(segment: int) -> list[Change]:
    """Five segments of keys that stay, but for one of the first that is deleted in another."""
    changes = puts(20)
    changes[1] = (Op.PUT, "dead", b"old")
    changes[4 * segment] = (Op.DELETE, "dead", b"")
    return changes


def test_below_the_tombstone_floor_the_whole_state_is_needed() -> None:
    changes = with_a_delete(2)
    log, peer = filled(changes), filled(changes)
    drop(log, 99)
    assert log.tombstone_floor == 9
    assert [info.last for info in log.manifest.segments[:3]] == [4, 8, 12]
    for last in (4, 8):
        with pytest.raises(ResyncRequired) as caught:
            log.replace(1, last, peer.blocks(1, last))
        assert (caught.value.position, caught.value.floor) == (last, 9)
    log.replace(1, 12, peer.blocks(1, 12))
    assert state(log) == state_of(changes)


def test_what_the_peer_dropped_may_still_be_needed_here() -> None:
    # Here the PUT is in the first segment. The peer has dropped PUT and DELETE.
    changes = with_a_delete(1)
    log, peer = filled(changes), filled(changes)
    drop(peer, 99)
    assert peer.tombstone_floor == 5
    for floor in (None, 5, 7):
        with pytest.raises(ResyncRequired) as caught:
            log.replace(5, 8, peer.blocks(5, 8), source_floor=floor)
        assert caught.value.position == 4
    log.replace(1, 8, peer.blocks(1, 8), source_floor=peer.tombstone_floor)
    assert state(log) == state_of(changes)
    assert log.tombstone_floor == 5


def test_holes_above_the_peers_floor_are_no_deletes() -> None:
    changes = [*puts(4), *puts(4), *puts(4), *puts(4)]
    log, peer = filled(changes), filled(changes)
    drop(peer, 0)
    with pytest.raises(ResyncRequired):
        log.replace(5, 8, peer.blocks(5, 8))
    log.replace(5, 8, peer.blocks(5, 8), source_floor=0)
    assert state(log) == state_of(changes)


def history(rng: random.Random) -> list[Change]:
    keys = [f"key/{n}" for n in range(rng.randint(4, 20))]
    return [
        (Op.PUT, key, rng.randbytes(2)) if rng.random() < 0.6 else (Op.DELETE, key, b"")
        for key in rng.choices(keys, k=rng.randint(20, 40))
    ]


def compacted_somehow(changes: list[Change], rng: random.Random) -> Log:
    """The same history, compacted at moments and to degrees of its own."""
    log = open_log()
    for op, key, body in changes:
        log.write([Update(op, key.encode(), body)])
        log.flush()
        if rng.random() < 0.1:
            fraction, upto = rng.choice((0.0, 0.5)), Seq(rng.randint(0, log.durable_seq))
            log.compact(CompactionPolicy(fraction, drop_deletes_upto=upto))
    return log


def replaced_somewhere(log: Log, peer: Log, rng: random.Random, floor: int | None) -> bool:
    """Try to take a part of the peer's log; say whether that was allowed."""
    finished = log.manifest.segments[:-1]
    low = rng.randrange(len(finished))
    high = rng.randrange(low, len(finished))
    first, last = finished[low].first, finished[high].last
    try:
        log.replace(first, last, peer.blocks(first, last), source_floor=floor)
    except ResyncRequired:
        return False
    return True


@pytest.mark.parametrize("knows_floor", [True, False])
@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 2000 if SOAK else 200), marks=pytest.mark.deep)]
)
def test_any_part_of_any_peer_gives_the_same_state_or_is_refused(
    seeds: range, knows_floor: bool
) -> None:
    taken = []
    for seed in seeds:
        rng = random.Random(seed)
        changes = history(rng)
        log, peer = compacted_somehow(changes, rng), compacted_somehow(changes, rng)
        for _ in range(4):
            floor = peer.tombstone_floor if knows_floor else None
            taken.append(replaced_somewhere(log, peer, rng, floor))
            assert state(log) == state_of(changes), seed
        drop(log, rng.randint(0, log.durable_seq))
        assert state(log) == state_of(changes), seed
    assert len(seeds) / 2 < sum(taken) < len(taken) - len(seeds) / 4


# ---------------------------------------------------------------------- crashes


def test_a_crash_at_any_call_leaves_the_old_segment_or_the_new_one() -> None:
    peer = filled(puts(14))
    config = replace(CONFIG, retire_after_s=1e9)

    def scene() -> tuple[MemoryFileSystem, Log]:
        fs = MemoryFileSystem()
        filled(puts(14), fs).close()
        log = open_log(fs, config)
        damage(log, 1)
        return fs, log

    fs, log = scene()
    begun = len(fs.operations)
    log.replace(5, 8, peer.blocks(5, 8))
    states = set()
    for call in range(begun + 1, len(fs.operations) + 1):
        fs, log = scene()
        fs.crash_at = call
        with pytest.raises(SimulatedCrash):
            log.replace(5, 8, peer.blocks(5, 8))
        for left in [*fs.crash_states(8, seed=call), fs.kill()]:
            with open_log(left, config) as again:
                info = again.manifest.segments[1]
                states.add(info.state)
                if info.state == State.SEALED:
                    assert list(again.records()) == list(peer.records())
                else:
                    again.replace(5, 8, peer.blocks(5, 8))
                    assert list(again.records()) == list(peer.records())
    assert states == {State.SEALED, State.QUARANTINED}
