"""Chains of replicas (Sprinkler, section 3.3): who takes, who gives out, who fails, and who joins."""

from __future__ import annotations

import pytest

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.feeding import Feeding
from sirius.broadcast.chain.routes import Routes
from sirius.broadcast.config import ChainConfig, ProxyConfig
from sirius.broadcast.events import EventBatch
from sirius.broadcast.messages import (
    ChainBeat,
    ChainIs,
    ChainPull,
    ChainPush,
    Events,
    Forward,
    Gossip,
    Message,
    Notify,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
    Subscribe,
)
from sirius.errors import UsageError
from sirius.types import Seq
from tests.broadcast.chains import Line, P, S
from tests.broadcast.histories import events_of, read_all

C = "client"


def publish(line: Line, name: str, serial: int, *keys: str, publisher: int = 7) -> list[Message]:
    batch = EventBatch.of([key.encode() for key in keys])
    return line.tell(name, C, Publish(S, publisher, serial, batch))


def keys_at(line: Line, name: str) -> list[str]:
    """What counts at a replica."""
    history = line[name].proxy.shelf.books[S].history
    return [event.key.decode() for event in events_of(read_all(history))]


def end_at(line: Line, name: str) -> int:
    return line[name].proxy.shelf.end(S)


# ---------------------------------------------------------------------- the line


def test_the_first_replica_founds_the_chain_and_others_join_at_its_end() -> None:
    line = Line("1", "2", "3")
    assert line.names == ["1", "2", "3"]
    assert [line[name].is_head for name in "123"] == [True, False, False]
    assert [line[name].is_tail for name in "123"] == [False, False, True]


def test_what_is_published_is_at_every_replica_before_it_is_answered() -> None:
    line = Line("1", "2", "3")
    assert publish(line, "1", 1, "a", "b") == [Published(S, 7, 1, Seq(1), Seq(2))]
    assert [keys_at(line, name) for name in "123"] == [["a", "b"]] * 3


@pytest.mark.parametrize("cut", [("1", "2"), ("2", "3")])
def test_nothing_is_answered_or_given_out_before_the_tail_has_it(cut: tuple[str, str]) -> None:
    line = Line("1", "2", "3")
    line.mute.add(cut)
    assert publish(line, "1", 1, "a") == []
    assert end_at(line, "1") == 1
    assert [keys_at(line, name) for name in "123"] == [[]] * 3
    line.mute.clear()
    line.run(0.3)
    assert [message for to, message in line.sent if to == C] == [Published(S, 7, 1, Seq(1), Seq(1))]


def test_what_waits_for_the_tail_collects_nothing() -> None:
    """Otherwise a hole would be left behind by an event that may come to nothing."""
    line = Line("1", "2")
    publish(line, "1", 1, "a")
    line.mute.add(("1", "2"))
    publish(line, "1", 2, "a")
    assert keys_at(line, "1") == ["a"]
    assert line["1"].proxy.shelf.count(S) == 1


def test_only_the_tail_answers_clients_and_only_the_head_takes() -> None:
    line = Line("1", "2")
    publish(line, "1", 1, "a")
    (answer,) = line.tell("2", C, Request(S, Seq(1), Seq(1), 5))
    assert isinstance(answer, Events)
    (forward,) = line.tell("2", C, Subscribe(S, Seq(0), (1, 1)))
    assert isinstance(forward, Forward)
    who = [ChainIs(P, line.decided.number, (Peer("1"), Peer("2")))]
    assert line.tell("1", C, Request(S, Seq(1), Seq(1), 5)) == who
    assert line.tell("1", C, Subscribe(S, Seq(0), (1, 1))) == who
    assert publish(line, "2", 2, "b") == who


def test_who_is_not_a_member_serves_nobody() -> None:
    line = Line("1", "2")
    line.mute |= {("1", "2"), ("2", "1")}
    line["2"].configured(Chain(line.decided.number + 1, (line["1"].me,)))
    assert line.tell("2", C, Request(S, Seq(1), Seq(1), 5)) == [
        ChainIs(P, line.decided.number + 1, (Peer("1"),))
    ]


def test_the_tail_says_who_the_replicas_are_with_its_gossip() -> None:
    line = Line("1", "2")
    answers = line.tell("2", C, Gossip((), wants_answer=True))
    assert [type(answer) for answer in answers] == [Gossip, ChainIs]


@pytest.mark.parametrize("dead", ["3", "none"])
def test_a_new_tail_speaks_at_once_to_the_clients_that_the_old_one_knew(dead: str) -> None:
    """Whether the old one died or handed over. Clients that know enough others would not ask for long otherwise."""
    line = Line("1", "2", "3")
    before = len(line.sent)
    for _ in range(20):
        line.tell("3", C, Gossip((), wants_answer=False))
        line.run(0.05)
    if dead == "3":
        line.kill("3")
        line.run(1.5)
    else:
        line.start("4")
        while "4" not in line.names:
            line.tell("3", C, Gossip((), wants_answer=False))
            line.run(0.05)
        line.run(0.5)
    told = [message for to, message in line.sent[before:] if to == C]
    who = ChainIs(P, line.decided.number, tuple(map(Peer, line.names)))
    assert line.names == (["1", "2"] if dead == "3" else ["1", "2", "3", "4"])
    assert who in told
    assert Notify(((S, Seq(0)),)) in told[told.index(who) :]


def test_a_chain_that_does_not_keep_up_refuses_for_a_while() -> None:
    line = Line("1", "2", config=ProxyConfig(window_bytes=300))
    line.mute.add(("1", "2"))
    answers = [answer for serial in range(1, 9) for answer in publish(line, "1", serial, "a" * 90)]
    assert {type(answer) for answer in answers} == {Refused}
    assert all(isinstance(answer, Refused) and answer.again for answer in answers)
    assert line["1"].proxy.shelf.books[S].pending_bytes <= 300 + 200


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("dead", ["1", "2", "3"])
def test_a_replica_that_dies_is_removed_and_nothing_is_lost_or_taken_twice(dead: str) -> None:
    """Of the head, the middle and the tail: before, between and behind."""
    line = Line("1", "2", "3")
    publish(line, "1", 1, "a")
    line.mute.add(("2", "3"))
    publish(line, "1", 2, "b")
    line.mute.clear()
    line.kill(dead)
    line.run(1.5)
    assert line.names == [name for name in "123" if name != dead]
    head = line.names[0]
    again = publish(line, head, 2, "b")
    assert again == [Published(S, 7, 2, Seq(2), Seq(2))]
    assert publish(line, head, 3, "c") == [Published(S, 7, 3, Seq(3), Seq(3))]
    assert [keys_at(line, name) for name in line.names] == [["a", "b", "c"]] * 2


def test_a_replica_is_left_alone_and_others_join_again() -> None:
    line = Line("1", "2", "3")
    publish(line, "1", 1, "a", "b", "a")
    line.kill("1")
    line.kill("3")
    line.run(2.0)
    assert line.names == ["2"]
    publish(line, "2", 2, "c")
    line.start("1")
    line.start("3")
    line.run(3.0)
    assert line.names[0] == "2"
    assert sorted(line.names) == ["1", "2", "3"]
    assert [keys_at(line, name) for name in "123"] == [["b", "a", "c"]] * 3


def test_a_repetition_takes_effect_once_although_nobody_is_left_who_took_it() -> None:
    """Whoever joins gets the marks of publishers with the events, also of those whose events are collected."""
    line = Line("1", "2", config=ProxyConfig(recent_bytes_max=1))
    publish(line, "1", 1, "a")
    publish(line, "1", 5, "a", publisher=8)
    publish(line, "1", 1, "b", publisher=9)
    for name in "12":
        line.kill(name)
        line.run(1.0)
        line.start(name)
        line.run(2.0)
    head = line.names[0]
    assert publish(line, head, 1, "a") == [Published(S, 7, 1, Seq(1), Seq(1))]
    assert publish(line, head, 5, "a", publisher=8) == [Published(S, 8, 5, Seq(2), Seq(2))]
    assert line.head.proxy.shelf.end(S) == 3


def test_without_those_marks_it_would_take_effect_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator hardly ever gets there: everybody has to be replaced before somebody repeats himself."""
    monkeypatch.setattr(Feeding, "_marks", lambda *_: ())
    with pytest.raises(AssertionError):
        test_a_repetition_takes_effect_once_although_nobody_is_left_who_took_it()


def test_a_head_that_was_removed_gets_nothing_to_the_tail_and_answers_nobody() -> None:
    line = Line("1", "2")
    line.mute |= {("1", "2"), ("2", "1")}
    old = line["1"]
    line.decided = Chain(line.decided.number + 1, (line["2"].me,))
    line.do(line["2"], line["2"].configured(line.decided))
    assert publish(line, "1", 1, "stale") == []
    line.mute.clear()
    line.run(0.4)
    assert publish(line, "1", 1, "stale") == []
    assert keys_at(line, "2") == []
    assert publish(line, "2", 1, "new") == [Published(S, 7, 1, Seq(1), Seq(1))]
    line.do(old, old.configured(line.decided))
    assert end_at(line, "1") == 0
    line.run(2.0)
    assert line.names == ["2", "1"]
    assert keys_at(line, "1") == ["new"]


def test_one_that_was_paused_does_not_take_others_for_dead() -> None:
    line = Line("1", "2")
    number = line.decided.number
    replica = line["1"]
    line.now += 60.0
    assert replica.tick(line.now, 0).propose == []
    line.do(line["2"], line["2"].tick(line.now, 0))
    line.run(1.0)
    assert line.decided.number == number


def test_the_last_one_is_never_removed() -> None:
    line = Line("1", "2")
    line.kill("1")
    line.kill("2")
    line.start("1")
    line.start("2")
    line.run(3.0)
    assert len(line.names) == 1
    assert not line["1"].is_member
    assert not line["2"].is_member


# ---------------------------------------------------------------------- joining


def test_the_tail_hands_over_only_to_one_that_has_everything() -> None:
    line = Line("1", config=ProxyConfig(forward_bytes_max=1, recent_bytes_max=1))
    for serial in range(1, 6):
        publish(line, "1", serial, "a", "b")
    line.start("2")
    line.mute.add(("1", "2"))
    line.run(0.3)
    assert line.decided.joining is not None
    publish(line, "1", 6, "c")
    assert keys_at(line, "1")[-1] == "c"
    line.mute.clear()
    line.run(1.0)
    assert line.names == ["1", "2"]
    assert keys_at(line, "2") == ["a", "b", "c"]


def test_the_tail_does_not_hand_over_to_one_that_is_close_and_lacks_something() -> None:
    line = Line("1")
    publish(line, "1", 1, "a")
    line.start("2")
    line.mute.add(("1", "2"))
    line.run(1.0)
    assert line["1"]._hands_over
    assert line.names == ["1"]
    line.mute.clear()
    line.run(1.0)
    assert line.names == ["1", "2"]
    assert keys_at(line, "2") == ["a"]


def test_from_the_hand_over_on_nothing_counts_that_the_new_tail_lacks() -> None:
    line = Line("1")
    publish(line, "1", 1, "a")
    line.start("2")
    tail = line["1"]
    while not tail._hands_over:
        line.run(0.05)
        assert line.names == ["1"]
    line.mute.add(("1", "2"))
    assert publish(line, "1", 2, "b") == []
    assert keys_at(line, "1") == ["a"]


def test_one_that_joins_and_dies_does_not_hold_the_chain_up() -> None:
    line = Line("1")
    line.start("2")
    while not line["1"]._hands_over:
        line.run(0.05)
    line.kill("2")
    assert publish(line, "1", 1, "a") == []
    line.run(1.0)
    assert line.names == ["1"]
    assert line.decided.joining is None
    assert publish(line, "1", 1, "a") == [Published(S, 7, 1, Seq(1), Seq(1))]


def test_a_long_history_is_sent_in_parts() -> None:
    line = Line(
        "1", config=ProxyConfig(forward_bytes_max=200, window_bytes=500, recent_bytes_max=1)
    )
    for serial in range(1, 40):
        publish(line, "1", serial, f"key{serial:030}", f"more{serial:030}")
    line.start("2")
    line.run(3.0)
    assert line.names == ["1", "2"]
    assert keys_at(line, "2") == keys_at(line, "1")
    assert len(keys_at(line, "2")) == 78


# ---------------------------------------------------------------------- bad messages


def test_messages_of_other_configurations_and_of_strangers_change_nothing() -> None:
    line = Line("1", "2")
    number = line.decided.number
    batch = EventBatch.of([b"x"]).numbered(Seq(1), 0)
    for sender, told in (("1", number - 1), ("1", number + 1), ("9", number)):
        line.tell("2", sender, ChainPush(told, S, Seq(1), (), batch))
        line.tell("2", sender, ChainBeat(told, ()))
    line.tell("1", "9", ChainPull(number, ((S, Seq(9)),), ((S, Seq(9)),)))
    assert [end_at(line, name) for name in "12"] == [0, 0]


def test_a_push_that_cannot_be_is_counted_and_changes_nothing() -> None:
    line = Line("1", "2")
    publish(line, "1", 1, "a")
    older = EventBatch.of([b"x"]).numbered(Seq(2), -5)
    line.tell("2", "1", ChainPush(line.decided.number, S, Seq(2), (), older))
    assert line["2"].bad_messages == 1
    assert keys_at(line, "2") == ["a"]


def test_silence_must_be_longer_than_two_beats() -> None:
    with pytest.raises(UsageError, match="less than two beats"):
        ChainConfig(beat_s=1.0, suspect_s=1.5)


# ---------------------------------------------------------------------- configurations

A, B, D = Member(Peer("a"), 1), Member(Peer("b"), 1), Member(Peer("d"), 1)


def test_configurations_follow_from_each_other() -> None:
    one = Chain().joined(A)
    assert one == Chain(1, (A,))
    two = one.joined(B)
    assert two == Chain(2, (A,), B)
    assert two.joined(D) is None
    assert two.extended() == Chain(3, (A, B))
    assert two.without(B) == Chain(3, (A,))
    assert two.without(A) is None
    assert Chain(3, (A, B), D).without(A) == Chain(4, (B,), D)


def test_neighbours() -> None:
    chain = Chain(3, (A, B), D)
    assert chain.neighbours(A) == (None, B)
    assert chain.neighbours(B) == (A, D)
    assert chain.neighbours(D) == (B, None)
    assert chain.neighbours(Member(Peer("a"), 2)) == (None, None)


# ---------------------------------------------------------------------- routes

ONE, TWO, THREE = Peer("1"), Peer("2"), Peer("3")
ASK = Request(S, Seq(1), Seq(1), 1)
PUT = Publish(S, 1, 1, EventBatch.of([b"a"]))


def routes() -> Routes:
    return Routes({P: (ONE, TWO, THREE)}, patience_s=1.0)


def test_what_is_published_goes_to_the_head_and_questions_to_the_tail() -> None:
    made = routes()
    made.learn(ChainIs(P, 2, (TWO, THREE)))
    assert made.target(P, PUT, 0.0) == TWO
    assert made.target(P, ASK, 0.0) == THREE
    assert made.target(Peer("other"), ASK, 0.0) == "other"
    made.learn(ChainIs(P, 1, (ONE,)))
    assert made.target(P, PUT, 0.0) == TWO


def test_who_is_not_answered_tries_one_after_the_other_until_somebody_knows_better() -> None:
    made = routes()
    made.learn(ChainIs(P, 2, (TWO, THREE)))
    tried = {made.target(P, PUT, float(now)) for now in range(4)}
    assert tried == {ONE, TWO, THREE}
    assert made.target(P, ASK, 4.0) == THREE
    made.learn(ChainIs(P, 3, (ONE, THREE)))
    assert made.target(P, PUT, 4.1) == ONE


def test_who_is_answered_stays() -> None:
    made = routes()
    made.learn(ChainIs(P, 2, (TWO, THREE)))
    for now in range(5):
        assert made.target(P, PUT, float(now)) == TWO
        made.heard(P, Published(S, 1, 1, Seq(1), Seq(1)))


def test_one_that_is_tried_and_says_what_is_known_is_left_again() -> None:
    made = routes()
    known = ChainIs(P, 2, (TWO, THREE))
    made.learn(known)
    made.target(P, ASK, 0.0)
    assert made.target(P, ASK, 2.0) != THREE
    made.learn(known)
    assert made.target(P, ASK, 2.1) == THREE
