"""Who of a chain may say how fresh it is: nobody who could be behind and not know it."""

from __future__ import annotations

from typing import Any

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.freshness import Freshness
from sirius.broadcast.messages import Peer
from tests.broadcast.chains import Line, P, S


def said(line: Line, who: str, **other: Any) -> dict[str, Any]:
    """What the status of a replica says."""
    replica = line[who]
    told = {"name": P, "configuration": replica.chain.number, "is_member": replica.is_member}
    return {**told, "streams": {}, **other}


def heard(line: Line, *names: str, asked_at: float) -> Freshness:
    """What the tail `C` knows when some have said how they are."""
    freshness = Freshness(line["C"])
    for at, name in enumerate(names):
        freshness.heard(Peer(name), said(line, name), asked_at + at)
    return freshness


def test_the_tail_is_as_fresh_as_the_oldest_word_of_the_others() -> None:
    line = Line("A", "B", "C")
    assert heard(line, "A", asked_at=10).of(S, 7, 20) == (7, None)
    assert heard(line, "A", "B", asked_at=10).of(S, 7, 20) == (7, 10)


def test_one_that_is_alone_knows_everything() -> None:
    assert heard(Line("C"), asked_at=0).of(S, 7, 20) == (7, 0)


def test_only_the_tail_knows_by_itself_and_others_hear_of_it() -> None:
    line = Line("C", "A")
    freshness = heard(line, "A", asked_at=10)
    assert freshness.of(S, 5, 20) == (5, None)
    freshness.heard(Peer("A"), said(line, "A", streams={S: {"known": 7, "age_s": 2.0}}), 15)
    assert freshness.of(S, 5, 20) == (7, 7)
    freshness.heard(Peer("A"), said(line, "A", streams={S: {"known": 6, "age_s": 9.0}}), 16)
    assert freshness.of(S, 5, 20) == (7, 7)


def test_a_tail_that_was_removed_and_does_not_know_gets_older_and_older() -> None:
    line = Line("A", "B", "C")
    freshness = heard(line, "A", "B", asked_at=10)
    assert freshness.of(S, 7, 20) == (7, 10)
    later = said(line, "A", configuration=line["A"].chain.number + 1)
    freshness.heard(Peer("A"), later, 30)
    freshness.heard(Peer("B"), said(line, "B"), 30)
    assert freshness.of(S, 7, 40) == (7, 30)


def test_who_started_again_does_not_speak_for_who_it_was() -> None:
    line = Line("A", "B", "C")
    freshness = heard(line, "A", asked_at=10)
    freshness.heard(Peer("B"), said(line, "B", is_member=False), 10)
    assert freshness.of(S, 7, 20) == (7, None)


def test_a_tail_that_may_have_handed_over_is_not_sure() -> None:
    """Whoever it took in may be alone by now, and all members here may not have heard."""
    line = Line("A", "C")
    chain = line["C"].chain
    joins = Chain(chain.number + 1, chain.members, Member(Peer("D"), 99))
    for name in ("A", "C"):
        line[name].configured(joins)
    assert heard(line, "A", asked_at=10).of(S, 7, 20) == (7, None)


def test_replicas_of_another_chain_are_no_members_of_this_one() -> None:
    line = Line("A", "C")
    freshness = Freshness(line["C"])
    freshness.heard(Peer("A"), said(line, "A", name="Q"), 10)
    assert freshness.of(S, 7, 20) == (7, None)
