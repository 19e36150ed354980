"""Brute-force twins: each clever structure against one that is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.paxos import Configuration, Content, Member, Run
from sirius.paxos.effects import Answer, Done, Rejected, Unknown
from sirius.paxos.members import next_step
from sirius.paxos.messages import Promise
from sirius.paxos.proposer import Proposer
from sirius.paxos.scout import Scout
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import PValue, Request, Span, Spans
from sirius.types import Ballot, NodeId, Seq
from tests.paxos.timing import timed
from tests.paxos.words import WordCodec, Words, words

SLOTS = 12

# ---------------------------------------------------------------------- spans

ranges = st.tuples(st.integers(1, SLOTS), st.integers(0, 5))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    first, more = draw(ranges)
    texts = [f"{draw(st.integers(0, 9))}.{at}" for at in range(more + 1)]
    value = words(first, *texts)
    return Span(value.first, value.last, Ballot(draw(st.integers(1, 3)), 1), value)


def by_slot(found: list[Span]) -> dict[int, tuple[Ballot, str]]:
    return {
        word.slot: (span.ballot, word.text)
        for span in found
        if isinstance(cut := span.cut, Words)
        for word in cut
    }


@given(
    puts=st.lists(st.one_of(spans(), st.integers(0, SLOTS)), max_size=12),
    look=ranges,
)
def test_spans_hold_what_a_dict_of_slots_holds(
    puts: list[Span | int], look: tuple[int, int]
) -> None:
    """An integer among the spans means: forget up to here."""
    twin: dict[int, tuple[Ballot, str]] = {}
    real = Spans()
    for put in puts:
        if isinstance(put, int):
            real.forget(put)
            twin = {slot: held for slot, held in twin.items() if slot > put}
        else:
            real.put(put)
            twin.update(by_slot([put]))
    assert by_slot(list(real)) == twin
    assert len(real) == len(list(real))
    assert all(one.last < two.first for one, two in zip(real, list(real)[1:], strict=False))
    assert real.bytes == sum(len(span.value) for span in real)
    first, last = look[0], look[0] + look[1]
    wanted = {slot: held for slot, held in twin.items() if first <= slot <= last}
    assert by_slot(real.within(first, last)) == wanted
    at = real.at(first)
    assert (at is not None) == (first in twin)


# ---------------------------------------------------------------------- the scout


@st.composite
def promises(draw: st.DrawFn) -> list[Promise]:
    """What acceptors hold: each the beginning of what one leader proposed, from where it knows no decision on."""
    proposed = {
        number: [words(slot, f"{slot}@{number}") for slot in range(1, SLOTS)]
        for number in (1, 2, 3)
    }
    found = []
    for _ in range(draw(st.integers(1, 3))):
        number, decided = draw(st.integers(1, 3)), draw(st.integers(0, SLOTS - 1))
        last = draw(st.integers(decided, SLOTS - 1))
        held = tuple(PValue(Ballot(number, 1), each) for each in proposed[number][decided:last])
        found.append(Promise(Ballot(9, 1), Seq(decided), Ballot(number, 1), held))
    return found


@given(found=promises(), behind=st.integers(0, 2))
def test_a_scout_takes_over_what_was_accepted_last_and_goes_furthest(
    found: list[Promise], behind: int
) -> None:
    scout = Scout(Ballot(9, 1), 0.0)
    for node, promise in enumerate(found):
        scout.promised(NodeId(node), promise)
    decided = scout.decided + behind
    number = max(promise.under.round for promise in found)
    slots = {
        value.first
        for promise in found
        if promise.under.round == number
        for _, value in promise.accepted
        if value.first > decided
    }
    texts = [word.text for value in scout.adopted(decided) for word in value]  # type: ignore[attr-defined]
    assert texts == [f"{slot}@{number}" for slot in sorted(slots)]


# ---------------------------------------------------------------------- members

NAMES = "abcde"


def member(name: str, life: int = 0) -> Member:
    return Member(NodeId(ord(name) - 96 + 100 * life), name)


def majorities(configuration: Configuration) -> Iterator[frozenset[NodeId]]:
    ids = configuration.voter_ids
    for size in range(len(ids) // 2 + 1, len(ids) + 1):
        yield from map(frozenset, combinations(ids, size))


def assert_majorities_meet(one: Configuration, two: Configuration) -> None:
    for left in majorities(one):
        assert all(left & right for right in majorities(two)), f"{one} and {two} can both decide"


names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)


@given(now=names, wish=names, reborn=st.sets(st.sampled_from(NAMES)), data=st.data())
def test_any_wish_is_reached_by_steps_whose_majorities_meet(
    now: list[str], wish: list[str], reborn: set[str], data: st.DataObject
) -> None:
    """Everybody wished for is there, some with another disk than before, as long as a majority still has its own."""
    configuration = Configuration(1, 1, tuple(map(member, now)))
    kept = [name for name in now if name not in reborn]
    if len(kept) < configuration.majority:
        return
    lives = {name: member(name, int(name in reborn)).node for name in NAMES}
    leader = data.draw(st.sampled_from(kept))
    alive = set(lives.values())
    for _ in range(40):
        step = next_step(configuration, wish, lives, alive, member(leader).node)
        if step is None and leader not in wish:
            able = [each.name for each in configuration.voters if lives.get(each.name) == each.node]
            (leader, *_) = [name for name in able if name in wish]
            step = next_step(configuration, wish, lives, alive, lives[leader])
        if step is None:
            break
        assert step.number == configuration.number + 1
        assert_majorities_meet(configuration, step)
        assert step.is_quorum(alive)
        configuration = step
    assert {(each.name, each.node) for each in configuration.voters} == {
        (name, lives[name]) for name in wish
    }
    assert configuration.learners == ()


@settings(max_examples=500)
@given(
    now=names,
    learners=names,
    wish=names,
    seen=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2)),
    level=st.sets(st.tuples(st.sampled_from(NAMES), st.integers(0, 2))),
    data=st.data(),
)
def test_no_step_is_ever_dangerous(
    now: list[str],
    learners: list[str],
    wish: list[str],
    seen: dict[str, int],
    level: set[tuple[str, int]],
    data: st.DataObject,
) -> None:
    """Whatever is seen and alive: majorities meet, the living are one, and the leader stays."""
    voters = tuple(map(member, now))
    waiting = tuple(member(name, 1) for name in learners)
    configuration = Configuration(1, 1, voters, waiting)
    leader = data.draw(st.sampled_from(now))
    lives = {name: member(name, life).node for name, life in seen.items()}
    alive = {member(name, life).node for name, life in level} | {member(leader).node}
    step = next_step(configuration, wish, lives, alive, member(leader).node)
    if step is not None:
        assert_majorities_meet(configuration, step)
        assert step.is_voter(member(leader).node), "the leader is never taken out"
        assert step.voters == configuration.voters or step.is_quorum(alive)
        assert len({each.node for each in step.members}) == len(step.members)


# ---------------------------------------------------------------------- sessions


@given(
    blocks=st.lists(st.one_of(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.none())),
    sessions_max=st.integers(1, 4),
)
def test_sessions_know_what_a_full_history_knows_or_say_that_they_do_not(
    blocks: list[list[int] | None], sessions_max: int
) -> None:
    """Each block is a list of sessions, one entry each; None is a hole that compaction left."""
    table = Sessions(1, sessions_max)
    codec = WordCodec()
    history: dict[int, int] = {}
    opened: dict[int, int] = {}
    slot = 0
    for block in blocks:
        if block is None:
            table.learn(Content(has_holes=True), Seq(slot + 1))
            slot += 1
            continue
        requests = []
        for session in block:
            opened.setdefault(session, slot)
            history[session] = history.get(session, 0) + 1
            requests.append(Request(session, history[session], Seq(0), ["x"], 1))
        value = codec.encode(slot + 1, requests)
        slot = value.last
        table.learn(codec.content(value), value.last)
        assert len(table) <= sessions_max
        for session in range(1, 6):
            known = table.last_serial(session, opened.get(session, slot))
            assert known in (None, history.get(session, 0))
        newest = block[-1]
        assert table.last_serial(newest, 0) == history[newest]
    assert table.last_serial(99, slot) == 0, "who opens a session now is known to have no entry"


# ---------------------------------------------------------------------- the proposer


steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 3)),
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("decide"), st.integers(1, 3)),
        st.tuples(st.just("expect"), st.integers(0, 6)),
        st.tuples(st.just("wait"), st.integers(1, 3)),
        st.tuples(st.just("hole"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(steps=steps)
def test_a_proposer_answers_every_request_once_and_truly(steps: list[tuple[str, int]]) -> None:
    """A leader that takes what comes in order decides some of it; whatever else happens, each token is answered once,
    and *done* only if it is decided in those very slots."""
    config = timed(request_timeout_s=3.0, pending_requests_max=6, forward_bytes_max=40)
    sessions = iter(range(1, 100))
    proposer = Proposer(config, lambda: next(sessions), Seq(0))
    asked: set[int] = set()
    answered: dict[int, Answer] = {}
    taken: dict[int, list[Request]] = {}
    serials: dict[int, int] = {}
    slots: dict[int, list[object]] = {}
    now, slot = 0.0, 0

    def note(answers: list[Answer]) -> None:
        for answer in answers:
            assert answer.token not in answered, "one answer"
            answered[answer.token] = answer
            if isinstance(answer, Done):
                assert slots[answer.last] == [answer.token]

    for kind, number in steps:
        if kind == "ask" and proposer.has_room(10):
            token = len(asked)
            asked.add(token)
            proposer.ask(token, [token] * number, 10, now)
        elif kind == "send":
            for request in proposer.next_requests(now):
                if request.serial == serials.get(request.session, 0) + 1:
                    serials[request.session] = request.last_serial
                    taken.setdefault(request.session, []).append(request)
                else:
                    assert request.serial <= serials.get(request.session, 0), "in order"
        elif kind == "decide":
            queue = taken.get(proposer.session, [])
            for request in [queue.pop(0) for _ in queue[:number]]:
                slot += len(request.updates)
                slots[slot] = [] if request.cancelled else [request.updates[0]]
                note(proposer.decided(Run(request.session, request.last_serial, Seq(slot))))
        elif kind == "expect":
            note(proposer.expected(proposer.session, number, Seq(slot)))
            note(proposer.expected(-1, number, Seq(slot)))
        elif kind == "wait":
            now += number
            note(proposer.expire(now))
        elif kind == "hole":
            note(proposer.lose(Seq(slot)))
        assert proposer.bytes <= 10 * len(proposer)
        assert len(proposer) <= config.pending_requests_max
    note(proposer.abandon("the end"))
    assert asked == answered.keys()
    assert len(proposer) == proposer.bytes == 0
    kinds = {Done, Unknown, Rejected}
    assert {type(answer) for answer in answered.values()} <= kinds
