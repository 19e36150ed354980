"""Every checker is seen firing on a history that breaks its promise, and keeps quiet on one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sirius.codec import BlockCodec
from sirius.paxos import Configuration, Member, PaxosConfig, Request
from sirius.testing.simulator.checkers import Checkers, held_bytes_max
from sirius.testing.simulator.truth import Replay, Violation
from sirius.types import Ballot, NodeId, Seq
from sirius.wal import Block, Op, Update
from sirius.wal.block import seal

CODEC = BlockCodec(lambda: 0)
CONFIG = PaxosConfig()
A, B, C = (Member(NodeId(number), name) for number, name in ((1, "a"), (2, "b"), (3, "c")))
THREE = Configuration(7, 1, (A, B, C))


def put(key: str, body: str) -> Update:
    return Update(Op.PUT, key.encode(), body.encode())


def delete(key: str) -> Update:
    return Update(Op.DELETE, key.encode())


def block(
    first: int, updates: Sequence[Update], session: int = 5, serial: int | None = None
) -> Block:
    request = Request(session, first if serial is None else serial, Seq(0), updates, 0)
    return CODEC.encode(first, [request])


def without(whole: Block, slot: int) -> Block:
    """Make a hole, as compaction does."""
    left, right = whole.entries["seq"] < slot, whole.entries["seq"] > slot
    keys, bodies = whole.raw[whole.keys_at : whole.bodies_at], whole.raw[whole.bodies_at :]
    entries = whole.entries[left | right]
    at, lengths = slot - whole.first, whole.entries
    key_at, body_at = int(lengths["key_len"][:at].sum()), int(lengths["body_len"][:at].sum())
    key_to = key_at + int(lengths["key_len"][at])
    body_to = body_at + int(lengths["body_len"][at])
    end = int(lengths["body_len"].sum())
    return seal(
        whole.first,
        whole.last,
        entries,
        (keys[:key_at] + keys[key_to:],),
        (bodies[:body_at] + bodies[body_to:end],),
    )


@pytest.fixture
def checkers() -> Checkers:
    return Checkers(CONFIG, 1000)


@pytest.fixture
def node() -> Replay:
    return Replay()


def test_equal_decisions_on_two_nodes_are_fine(checkers: Checkers) -> None:
    for name in "ab":
        replay = Replay()
        checkers.decided(name, replay, block(1, [put("k", "1"), put("k", "2")]))
        checkers.decided(name, replay, block(3, [delete("k")]))
    assert checkers.truth.last == 3
    assert checkers.truth.digests[3] == 0


def test_a_agreement_two_values_for_one_slot(checkers: Checkers, node: Replay) -> None:
    checkers.decided("a", node, block(1, [put("k", "1")]))
    with pytest.raises(Violation, match=r"^A: slot 1 is"):
        checkers.decided("b", Replay(), block(1, [put("k", "2")]))


def test_a_agreement_the_same_slot_with_another_time(checkers: Checkers, node: Replay) -> None:
    checkers.decided("a", node, block(1, [put("k", "1")]))
    other = BlockCodec(lambda: 9).encode(1, [Request(5, 1, Seq(0), [put("k", "1")], 0)])
    with pytest.raises(Violation, match=r"^A: slot 1 is"):
        checkers.decided("b", Replay(), other)


def test_a_agreement_one_ballot_with_two_leaders(checkers: Checkers) -> None:
    checkers.leads("a", 1, Ballot(1, 1))
    checkers.leads("a", 1, Ballot(1, 1))
    with pytest.raises(Violation, match=r"^A: ballot"):
        checkers.leads("a", 2, Ballot(1, 1))


@pytest.mark.parametrize("first", [1, 4])
def test_p_prefix_a_repetition_and_a_gap(checkers: Checkers, node: Replay, first: int) -> None:
    checkers.decided("a", node, block(1, [put("k", "1"), put("k", "2")]))
    with pytest.raises(Violation, match=r"^P: a decided"):
        checkers.decided("a", node, block(first, [put("k", "3")]))


def test_d_durability_an_acknowledged_update_that_is_not_there(
    checkers: Checkers, node: Replay
) -> None:
    checkers.decided("a", node, block(1, [put("k", "1"), put("k", "2")]))
    checkers.done("a", [put("k", "1"), put("k", "2")], 2)
    assert checkers.acknowledged == checkers.acknowledged_to == 2
    with pytest.raises(Violation, match=r"^D: a acknowledged"):
        checkers.done("a", [put("k", "2")], 1)
    with pytest.raises(Violation, match=r"^D: .* nobody has decided"):
        checkers.done("a", [put("k", "3")], 3)


def test_d_durability_a_rejected_update_that_is_there(checkers: Checkers, node: Replay) -> None:
    checkers.rejected("b", [put("k", "2")])
    checkers.decided("a", node, block(1, [put("k", "1")]))
    checkers.check_rejected()
    checkers.decided("a", node, block(2, [put("k", "2")]))
    with pytest.raises(Violation, match=r"^D: b rejected"):
        checkers.check_rejected()


def test_d_durability_an_update_that_took_effect_twice(checkers: Checkers, node: Replay) -> None:
    checkers.decided("a", node, block(1, [put("k", "1")]))
    with pytest.raises(Violation, match=r"^D: an update took effect twice"):
        checkers.decided("a", node, block(2, [put("k", "1")], session=6, serial=1))


@pytest.mark.parametrize("serial", [1, 3])
def test_d_durability_a_serial_repeated_or_left_out(
    checkers: Checkers, node: Replay, serial: int
) -> None:
    checkers.decided("a", node, block(1, [put("k", "1")]))
    with pytest.raises(Violation, match=rf"^D: slot 2 holds serial {serial}"):
        checkers.decided("a", node, block(2, [put("k", "2")], serial=serial))


def test_d_durability_too_few_disks_hold_what_was_acknowledged(
    checkers: Checkers, node: Replay
) -> None:
    checkers.decided("a", node, CODEC.membership(1, THREE))
    checkers.decided("a", node, block(2, [put("k", "1")], serial=1))
    checkers.done("a", [put("k", "1")], 2)
    checkers.check_kept({A.node: {1, 2}, B.node: {1, 2}}, lost=set())
    checkers.check_kept({A.node: {1, 2}, B.node: {1}}, lost={C.node})
    with pytest.raises(Violation, match=r"^D: slot 2 is on 1 of 3 disks"):
        checkers.check_kept({A.node: {1, 2}, B.node: {1}}, lost=set())


def test_c_convergence_a_state_that_differs(checkers: Checkers, node: Replay) -> None:
    checkers.decided("a", node, block(1, [put("k", "1")]))
    node.marks[b"other"] = node.digest = 4711
    with pytest.raises(Violation, match=r"^C: a has another state at 2"):
        checkers.decided("a", node, block(2, [put("k", "2")]))


def test_r_removals_a_hole_is_right_only_where_something_newer_is(checkers: Checkers) -> None:
    whole = block(1, [put("k", "1"), put("l", "2"), put("k", "3")])
    checkers.decided("a", Replay(), whole)
    checkers.decided("b", Replay(), without(whole, 1))
    for slot in (2, 3):
        with pytest.raises(Violation, match=rf"^R: c has a hole at {slot}"):
            checkers.decided("c", Replay(), without(whole, slot))


def test_r_removals_a_delete_goes_only_when_everybody_has_it(checkers: Checkers) -> None:
    whole = block(1, [put("l", "1"), delete("k")])
    checkers.decided("a", Replay(), whole)
    with pytest.raises(Violation, match=r"^R: b has a hole at 2"):
        checkers.decided("b", Replay(), without(whole, 2))
    checkers.truth.deletes_dropped_upto = 2
    checkers.decided("b", Replay(), without(whole, 2))


def test_r_removals_a_delete_that_was_dropped_too_early_brings_the_key_back(
    checkers: Checkers,
) -> None:
    first, second = block(1, [put("k", "1")]), block(2, [delete("k"), put("l", "2")])
    full, partial = Replay(), Replay()
    for each in (first, second):
        checkers.decided("a", full, each)
    checkers.truth.deletes_dropped_upto = 2
    checkers.decided("b", partial, first)
    with pytest.raises(Violation, match=r"^C: b has another state at 3"):
        checkers.decided("b", partial, without(second, 2))


def test_a_agreement_a_hole_that_nobody_has_decided(checkers: Checkers) -> None:
    with pytest.raises(Violation, match=r"^A: b has a hole at 1"):
        checkers.decided("b", Replay(), Block.hole(1, 1))


def test_c_convergence_waits_for_what_superseded_a_hole(checkers: Checkers) -> None:
    first, second = block(1, [put("k", "1"), put("l", "2")]), block(3, [put("k", "3")])
    full, partial = Replay(), Replay()
    for each in (first, second):
        checkers.decided("a", full, each)
    checkers.decided("b", partial, without(first, 1))
    assert partial.digest != checkers.truth.digests[2]
    checkers.decided("b", partial, second)
    assert partial.digest == checkers.truth.digests[3]


def test_r_reads_a_stale_one(checkers: Checkers) -> None:
    checkers.read("a", 5, 5)
    with pytest.raises(Violation, match=r"^R: a read at a"):
        checkers.read("a", 5, 4)


def test_m_memory_above_its_bound(checkers: Checkers) -> None:
    bound = held_bytes_max(CONFIG, 1000)
    checkers.memory("a", bound)
    with pytest.raises(Violation, match=r"^M: a holds"):
        checkers.memory("a", bound + 1)
