"""Manifests: which edits are legal, and that nothing but a whole one is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import CorruptFile, InvariantViolation
from sirius.types import SegmentId, Seq
from sirius.wal.manifest import Manifest, SegmentInfo, State


def sealed(number: int, first: int, last: int, size: int = 0) -> SegmentInfo:
    return SegmentInfo(SegmentId(number), Seq(first), Seq(last), State.SEALED, size)


def manifest(*bounds: tuple[int, int]) -> Manifest:
    """A manifest of sealed segments 1, 2, … with these bounds, and an active one behind."""
    segments = [sealed(at, *each) for at, each in enumerate(bounds, 1)]
    fresh = SegmentInfo(SegmentId(len(bounds) + 1), Seq(bounds[-1][1] + 1 if bounds else 1))
    return Manifest(7, next_segment=SegmentId(len(bounds) + 2), segments=(*segments, fresh))


THREE = manifest((1, 10), (11, 20), (21, 30))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    bounds, first = [], 1
    for covered in draw(st.lists(st.integers(1, 2**50), max_size=4)):
        bounds.append((first, first + covered - 1))
        first += covered
    return replace(
        manifest(*bounds),
        uid=draw(st.integers(0, 2**64 - 1)),
        version=draw(st.integers(1, 2**40)),
        home=(draw(st.integers(0, 2**64)), draw(st.integers(0, 2**64))),
        tombstone_floor=Seq(draw(st.integers(0, first - 1))),
        tags=draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)),
    )


# --- bytes ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(manifests(), st.text(max_size=20))
def test_what_is_encoded_is_decoded_again(example: Manifest, reason: str) -> None:
    example.check()
    assert Manifest.decode(example.encode(), "m") == example
    if len(example.segments) > 1:
        damaged = example.quarantine(example.segments[0].id, reason)
        assert Manifest.decode(damaged.encode(), "m") == damaged


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_every_byte_of_a_manifest_is_guarded(mask: int) -> None:
    raw = THREE.encode()
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]
        with pytest.raises(CorruptFile):
            Manifest.decode(changed, "m")


def test_a_manifest_that_is_cut_or_goes_on_is_refused() -> None:
    raw = THREE.encode()
    for changed in (*(raw[:size] for size in range(len(raw))), raw + b"\n", raw + b"\0", raw + raw):
        with pytest.raises(CorruptFile):
            Manifest.decode(changed, "m")


def test_a_manifest_of_another_version_is_refused() -> None:
    raw = THREE.encode().replace(b"sirius-manifest 1", b"sirius-manifest 2")
    with pytest.raises(CorruptFile):
        Manifest.decode(raw, "m")


def test_the_bytes_of_a_manifest_never_change() -> None:
    example = replace(manifest((1, 9)), tags={"a": "ü"})
    assert example.encode() == (
        b"sirius-manifest 1 crc32c=11861910 bytes=389\n"
        b'{"format": 1, "uid": 7, "version": 1, "home": [0, 0], "next_segment": 3, '
        b'"tombstone_floor": 0, "era": 0, "segments": [{"id": 1, "first": 1, "last": 9, "state": "sealed", '
        b'"bytes": 0, "blocks": 0, "records": 0, "index_crc": 0, "reason": ""}, {"id": 2, '
        b'"first": 10, "last": 0, "state": "active", "bytes": 0, "blocks": 0, "records": 0, '
        b'"index_crc": 0, "reason": ""}], "tags": {"a": "\\u00fc"}}\n'
    )


# --- legal edits ----------------------------------------------------------------------------------


def test_every_edit_is_the_next_version() -> None:
    edits = [
        THREE.rotate(sealed(4, 31, 40)),
        THREE.swap([SegmentId(2)], [sealed(2, 11, 20, 5)]),
        THREE.tagged(a="b"),
        THREE.quarantine(SegmentId(2), "rot"),
        THREE.at_home((1, 2), 8),
    ]
    assert {edit.version for edit in edits} == {2}


def test_a_rotation_puts_an_empty_segment_behind() -> None:
    after = THREE.rotate(sealed(4, 31, 40, 1000))
    assert after.segments[-2] == sealed(4, 31, 40, 1000)
    assert after.active == SegmentInfo(SegmentId(5), Seq(41))
    assert after.next_segment == 6


def test_a_swap_puts_one_segment_in_the_place_of_neighbours() -> None:
    reserved, number = THREE.reserve()
    assert (reserved.version, number, reserved.next_segment) == (1, 5, 6)
    after = reserved.swap([SegmentId(1), SegmentId(2)], [sealed(number, 1, 20)], 15)
    assert [info.id for info in after.segments] == [5, 3, 4]
    assert after.tombstone_floor == 15
    assert after.swap([SegmentId(5)], [replace(after.segments[0])], 3).tombstone_floor == 15


def test_tags_are_added_to_those_that_are_there() -> None:
    assert THREE.tagged(a="1", b="2").tagged(b="3").tags == {"a": "1", "b": "3"}


# --- illegal ones ---------------------------------------------------------------------------------

ILLEGAL: dict[str, Callable[[], object]] = {
    "a rotation that leaves a gap": lambda: THREE.rotate(sealed(4, 32, 40)),
    "a rotation that overlaps": lambda: THREE.rotate(sealed(4, 30, 40)),
    "a rotation that covers nothing": lambda: THREE.rotate(sealed(4, 31, 30)),
    "a rotation that runs backwards": lambda: THREE.rotate(sealed(4, 31, 12)),
    "a swap of segments that are no neighbours": lambda: THREE.swap(
        [SegmentId(1), SegmentId(3)], [sealed(2, 1, 30)]
    ),
    "a swap in the wrong order": lambda: THREE.swap(
        [SegmentId(2), SegmentId(1)], [sealed(2, 1, 20)]
    ),
    "a swap of nothing": lambda: THREE.swap([], []),
    "a swap of an unknown segment": lambda: THREE.swap([SegmentId(9)], [sealed(9, 1, 10)]),
    "a swap that forgets the end": lambda: THREE.swap([SegmentId(1)], [sealed(1, 1, 9)]),
    "a swap that forgets the beginning": lambda: THREE.swap([SegmentId(1)], [sealed(1, 2, 10)]),
    "a swap that covers too much": lambda: THREE.swap([SegmentId(1)], [sealed(1, 1, 11)]),
    "a swap for nothing": lambda: THREE.swap([SegmentId(1)], []),
    "a swap of the active segment": lambda: THREE.swap([SegmentId(4)], [sealed(4, 31, 40)]),
    "a swap that gives a number twice": lambda: THREE.swap([SegmentId(1)], [sealed(3, 1, 10)]),
    "a swap with a number never given out": lambda: THREE.swap([SegmentId(1)], [sealed(5, 1, 10)]),
    "a quarantine of the active segment": lambda: THREE.quarantine(SegmentId(4), "rot"),
    "a quarantine of an unknown segment": lambda: THREE.quarantine(SegmentId(9), "rot"),
}


@pytest.mark.parametrize("edit", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_it_is_refused(edit: Callable[[], object]) -> None:
    with pytest.raises(InvariantViolation):
        edit()


def test_check_wants_one_active_segment_and_at_the_end() -> None:
    active = THREE.active
    for segments in ((), THREE.segments[:-1], (*THREE.segments, replace(active, id=SegmentId(5)))):
        with pytest.raises(InvariantViolation):
            replace(THREE, segments=segments, next_segment=SegmentId(9)).check()


def test_check_wants_the_log_to_begin_at_1() -> None:
    with pytest.raises(InvariantViolation, match="begins at 11, not 1"):
        replace(THREE, segments=THREE.segments[1:]).check()
