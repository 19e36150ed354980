"""Publishers: clients that number their updates themselves, and may send them again at any time, to any node."""

from __future__ import annotations

import pytest

from sirius.paxos import Content, Numbers, PaxosConfig, Request, Run
from sirius.paxos.effects import Done, Rejected, Unknown
from sirius.paxos.publishers import Publishers
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import PUBLISHERS
from sirius.types import Seq
from tests.paxos.harness import Cluster
from tests.paxos.timing import timed
from tests.paxos.words import Words, hole

ME, OTHER = PUBLISHERS + 7, PUBLISHERS + 8


def led(config: PaxosConfig | None = None) -> Cluster:
    cluster = Cluster("abc", config)
    cluster.elect("a")
    return cluster


def numbers(serial: int, after: int | None = None, session: int = ME) -> Numbers:
    return Numbers(session, serial, serial - 1 if after is None else after)


def log(cluster: Cluster) -> list[str]:
    """What all nodes agree on."""
    (found,) = {tuple(cluster.log(name)) for name in cluster.up}
    return list(found)


# ---------------------------------------------------------------------- at most once


@pytest.mark.parametrize("name", ["a", "b"], ids=["the leader", "a follower"])
def test_what_is_sent_twice_is_in_the_log_once_and_acknowledged_twice(name: str) -> None:
    cluster = led()
    cluster.publish(name, 1, numbers(1), "x", "y")
    cluster.settle()
    cluster.publish(name, 2, numbers(1), "x", "y")
    first, again = cluster.answers(name)
    assert (first, again) == (Done(1, first.last), Done(2, first.last))  # type: ignore[union-attr]
    assert log(cluster) == ["x", "y"]


def test_both_of_two_that_are_under_way_at_two_nodes_are_acknowledged() -> None:
    cluster = led()
    for name, token in ("b", 1), ("c", 2):
        cluster.publish(name, token, numbers(1), "x")
    cluster.settle()
    assert log(cluster) == ["x"]
    assert cluster.answers("b")[0].token == 1
    assert cluster.answers("c")[0].token == 2


def test_a_new_leader_knows_what_the_old_one_decided() -> None:
    cluster = led()
    cluster.publish("a", 1, numbers(1), "x")
    cluster.settle()
    cluster.crash("a")
    cluster.run(3.0)
    cluster.publish("b", 2, numbers(1), "x", "y")
    cluster.run(1.0)
    assert cluster.log("b") == ["x", "y"]
    assert [answer.token for answer in cluster.answers("b") if isinstance(answer, Done)] == [2]


def test_after_a_change_of_the_leader_a_node_sends_again_what_it_passed_on() -> None:
    cluster = led()
    cluster.publish("b", 1, numbers(1), "x")
    cluster.drop("Forward")
    cluster.crash("a")
    cluster.run(3.0)
    assert [type(answer) for answer in cluster.answers("b")] == [Done]
    assert cluster.log("b") == ["x"]


def test_the_rest_of_what_is_there_in_part_is_taken() -> None:
    cluster = led()
    cluster.publish("a", 1, numbers(1), "1", "2")
    cluster.publish("a", 2, numbers(3), "3")
    cluster.settle()
    cluster.publish("b", 3, numbers(2), "2", "3", "4", "5")
    cluster.settle()
    assert log(cluster) == ["1", "2", "3", "4", "5"]


# ---------------------------------------------------------------------- order


def test_serials_may_leave_gaps_where_the_publisher_says_so() -> None:
    cluster = led()
    cluster.judge.leave_out(ME, 999)
    cluster.publish("a", 1, numbers(1), "x")
    cluster.publish("a", 2, numbers(1000, after=0), "y")
    cluster.settle()
    cluster._do("a", cluster.machine("a").propose(3, ["too late"], 10, numbers(500, after=0)))
    assert log(cluster) == ["x", "y"]
    assert [type(answer) for answer in cluster.answers("a")] == [Done] * 3


def test_what_came_out_of_order_waits_for_what_belongs_in_front_of_it() -> None:
    cluster = led()
    cluster.publish("b", 1, numbers(2), "2")
    cluster.publish("b", 2, numbers(1), "1")
    cluster.settle()
    assert log(cluster) == ["1", "2"]


def test_a_request_whose_predecessor_is_nowhere_is_unknown_in_the_end_and_says_why() -> None:
    cluster = led(timed(request_timeout_s=1.0))
    cluster.publish("a", 1, numbers(5), "5")
    cluster.publish("b", 2, numbers(5, session=OTHER), "5")
    cluster.run(2.0)
    for name, token in ("a", 1), ("b", 2):
        (answer,) = cluster.answers(name)
        assert isinstance(answer, Unknown)
        assert answer.token == token
        assert "cannot stand behind serial 0" in answer.reason
    assert log(cluster) == []


def test_one_publisher_does_not_hold_up_another() -> None:
    cluster = led()
    cluster.publish("b", 1, numbers(5), "5")
    cluster.publish("b", 2, numbers(1, session=OTHER), "1")
    cluster.settle()
    assert log(cluster) == ["1"]


def test_a_leader_that_asks_for_a_publisher_nobody_knows_is_not_answered() -> None:
    waiting = Publishers(timed())
    waiting.expected(ME, 1)
    assert waiting.next_requests(0.0) == []


# ---------------------------------------------------------------------- bounds


def test_no_more_are_passed_on_than_there_is_room_for() -> None:
    cluster = led(timed(pending_requests_max=1, request_timeout_s=1.0))
    cluster.cut_off("b")
    cluster.publish("b", 1, numbers(1), "x")
    cluster.publish("b", 2, numbers(2), "y")
    (answer,) = cluster.answers("b")
    assert isinstance(answer, Rejected)
    cluster.wait(1.1)
    cluster.tick("b")
    assert cluster.answers("b") == [Unknown(1, "not decided in time")]


def test_a_window_of_bytes_is_on_the_way_to_the_leader() -> None:
    waiting = Publishers(timed(forward_bytes_max=10))
    requests = [Request(ME, at, Seq(0), "x", 6, after=at - 1) for at in (1, 2, 3)]
    for at, request in enumerate(requests):
        waiting.ask(at, request, 0.0)
    assert waiting.next_requests(0.0) == [(requests[0],)]
    assert waiting.next_requests(0.0) == []
    waiting.decided(Run(ME, 1, Seq(9)))
    assert waiting.next_requests(0.0) == [(requests[1],)]
    assert (len(waiting), waiting.bytes) == (2, 12)
    assert waiting.decided(Run(ME, 3, Seq(20))) == [Done(1, Seq(20)), Done(2, Seq(20))]
    assert (len(waiting), waiting.bytes) == (0, 0)


def test_a_node_that_stops_tells_publishers_that_it_does_not_know() -> None:
    cluster = led()
    cluster.cut_off("b")
    cluster.publish("b", 1, numbers(1), "x")
    cluster._do("b", cluster.machine("b").stop("bye"))
    assert cluster.answers("b") == [Unknown(1, "bye")]


# ---------------------------------------------------------------------- compaction, and what is remembered


def compacted(cluster: Cluster, name: str) -> None:
    """Leave of a node's log what compaction would, if every other key had been written again."""
    disk = cluster.nodes[name].disk
    kept = [word for value in disk.log for word in value if word.is_mark or word.configuration]
    disk.log = [Words(Seq(1), disk.log[-1].last, tuple(kept))]
    disk.log_synced = 1


def test_a_compacted_log_remembers_publishers_as_well_as_a_whole_one() -> None:
    cluster = led()
    cluster.publish("a", 1, numbers(1), "x", "y")
    cluster.settle()
    for name in "abc":
        cluster.crash(name)
        compacted(cluster, name)
        cluster.start(name)
    cluster.run(2.0)
    cluster.publish("a", 2, numbers(1), "x", "y", "z")
    cluster.run(1.0)
    assert cluster.log("a") == ["z"], "x and y were compacted, and not taken again"


def test_holes_forget_nodes_and_not_publishers() -> None:
    table = Sessions(1, 10)
    table.learn(Content((Run(5, 3, Seq(3)), Run(ME, 9, Seq(4)))), Seq(4))
    table.learn(Content((Run(OTHER, 2, Seq(8)),), (), True), Seq(9))
    assert table.last_serial(5, opened=0) is None
    assert [table.last_serial(each, 0) for each in (ME, OTHER, PUBLISHERS)] == [9, 2, 0]


def test_the_publishers_that_wrote_last_are_remembered() -> None:
    table = Sessions(1, 10, publishers_max=2)
    for slot, session in enumerate((ME, OTHER, ME, PUBLISHERS), 1):
        table.learn(Content((Run(session, slot, Seq(slot)),)), Seq(slot))
    assert [table.last_serial(each, 0) for each in (ME, OTHER, PUBLISHERS)] == [3, 0, 4]


def test_a_log_that_was_taken_whole_brings_its_publishers_along() -> None:
    cluster = led()
    taken = Sessions(1, 10)
    taken.learn(Content((Run(ME, 2, Seq(50)),), (), True), Seq(50))
    machine = cluster.machine("c")
    cluster.nodes["c"].disk.log = [hole(1, 50)]
    cluster._do("c", machine.resynced(Seq(50), None, taken))
    cluster._do("c", machine.propose(1, ["x", "y"], 20, numbers(1)))
    assert cluster.answers("c") == [Done(1, Seq(50))]
