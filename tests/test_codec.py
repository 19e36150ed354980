"""What consensus reads off blocks: whose requests are in there."""

from __future__ import annotations

from sirius.codec import BlockCodec
from sirius.paxos import Configuration, Member, Request, Run
from sirius.paxos.values import PUBLISHERS
from sirius.testing.filesystem import MemoryFileSystem
from sirius.types import NodeId, Seq
from sirius.wal import Block, Log, LogConfig, Op, Update
from sirius.wal.compaction.plan import CompactionPolicy

CODEC = BlockCodec(lambda: 1)
ME, OTHER = PUBLISHERS + 7, PUBLISHERS + 8


def request(session: int, serial: int, *keys: str) -> Request:
    updates = [Update(Op.PUT, key.encode(), b"body") for key in keys]
    return Request(session, serial, Seq(0), updates, 10)


def ops(block: Block) -> list[int]:
    return block.entries["op"].tolist()  # type: ignore[no-any-return]


def test_a_mark_stands_behind_each_request_of_a_publisher_and_behind_no_other() -> None:
    block = CODEC.encode(5, [request(ME, 1, "a", "b"), request(3, 1, "c"), request(ME, 3, "d")])
    assert ops(block) == [Op.PUT, Op.PUT, Op.SESSION, Op.PUT, Op.PUT, Op.SESSION]
    assert block.entries["serial"].tolist() == [1, 2, 2, 1, 3, 3]
    assert block.entries["session"].tolist() == [ME, ME, ME, 3, ME, ME]


def test_each_request_of_a_publisher_is_found_where_its_last_update_is() -> None:
    block = CODEC.encode(5, [request(ME, 1, "a", "b"), request(ME, 3, "c"), request(3, 9, "d")])
    runs = (Run(ME, 2, Seq(6)), Run(ME, 3, Seq(8)), Run(3, 9, Seq(10)))
    assert CODEC.content(block) == (runs, (), False)


def test_a_block_that_was_cut_in_front_of_a_mark_says_the_same() -> None:
    block = CODEC.encode(5, [request(ME, 1, "a", "b")])
    assert CODEC.content(block.cut(5, 6)).runs == (Run(ME, 2, Seq(6)),)
    assert CODEC.content(block.cut(7, 7)).runs == (Run(ME, 2, Seq(6)),)
    assert CODEC.content(block.cut(5, 5)).runs == (Run(ME, 1, Seq(5)),)


def test_a_configuration_is_found_with_and_without_publishers() -> None:
    configuration = Configuration(1, 1, (Member(NodeId(1), "a"),))
    lone = CODEC.membership(1, configuration)
    assert CODEC.content(lone) == ((), (configuration,), False)
    both = CODEC.join([lone, CODEC.encode(2, [request(ME, 1, "a")])])
    assert CODEC.content(both) == ((Run(ME, 1, Seq(2)),), (configuration,), False)


def test_a_cancelled_request_of_a_node_leaves_no_ops() -> None:
    block = CODEC.encode(1, [Request(3, 1, Seq(0), range(2), 0, cancelled=True)])
    assert ops(block) == [Op.NOOP] * 2
    assert CODEC.content(block).runs == (Run(3, 2, Seq(2)),)


# ---------------------------------------------------------------------- compaction


def compacted(blocks: list[Block], sessions_kept: int = 100) -> list[Block]:
    """Return what compaction leaves of blocks."""
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    with Log.open("/d/log", LogConfig(background=False), fs=fs) as log:
        for block in blocks:
            log.append(block)
        log.rotate()
        log.compact(CompactionPolicy(dead_fraction_min=0.0, sessions_kept=sessions_kept))
        return list(log.blocks())


def test_compaction_keeps_the_newest_mark_of_each_session_and_so_what_consensus_knows() -> None:
    blocks = [
        CODEC.encode(1, [request(ME, 1, "a"), request(OTHER, 1, "a")]),
        CODEC.encode(5, [request(ME, 2, "a"), request(9, 1, "a")]),
    ]
    left = compacted(blocks)
    found = [entry for block in left for entry in block.entries["seq"].tolist()]
    assert found == [4, 6, 7], "the marks, and the newest value of a"
    runs = [run for block in left for run in CODEC.content(block).runs]
    assert runs == [Run(OTHER, 1, Seq(3)), Run(ME, 2, Seq(5))]
    assert any(CODEC.content(block).has_holes for block in left)


def test_compaction_keeps_the_marks_of_so_many_sessions_that_wrote_last() -> None:
    sessions = [request(PUBLISHERS + at, 1, "a") for at in (3, 1, 4, 2)]
    left = compacted([CODEC.encode(1, sessions)], sessions_kept=2)
    runs = [run.session - PUBLISHERS for block in left for run in CODEC.content(block).runs]
    assert runs == [4, 2]
