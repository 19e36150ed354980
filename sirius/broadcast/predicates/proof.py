"""When may a GC event collect events that collect? The requirement of Sprinkler's section 2.1, checked.

If g collects an earlier g', then everything that g' collected must match g: for all e before g', g'.P(e) ⇒ g.P(e).
Else somebody who is given a hole for e, a hole for g', and then g, was never told why e may be left out.

- g' is a *keyed* event. What it collected has its topic and key, and a lower or equal seq and time. Atoms about
  topic and key say the same of both, `seq <` and `time <` hold for the earlier if they hold for the later, and
  `and` and `or` keep that. So it is enough that the predicate has no attributes: it is *closed*.
- g' is a *GC event*: `covers` looks for a proof, term by term. It knows that e is older than g'. It may miss a proof;
  then g' stays, which is always right.
"""

from __future__ import annotations

from sirius.broadcast.predicates.terms import (
    And,
    Attribute,
    Comparison,
    KeyIs,
    KeyPrefix,
    Or,
    Predicate,
    SeqBelow,
    TimeBelow,
    TopicIs,
    topic_matches,
)


def is_closed(predicate: Predicate) -> bool:
    """Say whether it holds for all earlier events of a topic and key if it holds for one."""
    if isinstance(predicate, And | Or):
        return all(map(is_closed, predicate.parts))
    return not isinstance(predicate, Attribute)


def covers(new: Predicate, old: Predicate, seq: int, time: int) -> bool:
    """Say whether `new` provably matches all that `old` matches before the GC event at `seq` and `time`."""
    return implies(flat(And((old, SeqBelow(seq), TimeBelow(time + 1)))), flat(new))


def flat(predicate: Predicate) -> Predicate:
    """Take out brackets that change nothing: `a and (b and c)`.

    Proofs are looked for along both predicates. Through an `and` of `and`s on one side and an `or` of `or`s on the
    other there are more ways than anybody can go: 20 brackets would have kept every proxy busy for hours.
    """
    if not isinstance(predicate, And | Or):
        return predicate
    kind = type(predicate)
    parts: list[Predicate] = []
    for part in map(flat, predicate.parts):
        parts += part.parts if isinstance(part, And | Or) and type(part) is kind else (part,)
    return kind(tuple(parts))


def implies(old: Predicate, new: Predicate) -> bool:
    """Say whether whatever matches `old` provably matches `new`."""
    if isinstance(old, Or):
        return all(implies(part, new) for part in old.parts)
    if isinstance(new, And):
        return all(implies(old, part) for part in new.parts)
    if isinstance(old, And):
        if any(isinstance(part, Or) for part in old.parts):
            return _by_cases(old, new)
        return any(implies(part, new) for part in old.parts) or (
            isinstance(new, Or) and any(implies(old, part) for part in new.parts)
        )
    if isinstance(new, Or):
        return any(implies(old, part) for part in new.parts)
    return _atom_implies(old, new)


def _by_cases(old: And, new: Predicate) -> bool:
    """An `or` below an `and`: show it for each of its parts, one `or` at a time, or without them."""
    either = next(part for part in old.parts if isinstance(part, Or))
    others = tuple(part for part in old.parts if part is not either)
    if others and implies(And(others), new):
        return True
    return all(implies(part, new) for part in either.parts)


def _atom_implies(old: Predicate, new: Predicate) -> bool:
    match old, new:
        case (SeqBelow(low), SeqBelow(high)) | (TimeBelow(low), TimeBelow(high)):
            return low <= high
        case KeyIs(key), KeyPrefix(prefix):
            return key.startswith(prefix)
        case KeyPrefix(longer), KeyPrefix(prefix):
            return longer.startswith(prefix)
        case TopicIs(narrow), TopicIs(wide):
            # A pattern is itself a topic of the shape that it stands for: its stars are names that no other pattern
            # has.
            return topic_matches(wide, narrow)
        case Attribute(), Attribute():
            return _attribute_implies(old, new)
    return old == new


def _attribute_implies(old: Attribute, new: Attribute) -> bool:
    if old.name != new.name:
        return False
    if old == new:
        return True
    low, high = _bounds(new)
    least, most = _bounds(old)
    if new.comparison == Comparison.OTHER:
        return old.comparison != Comparison.OTHER and not least <= new.value <= most
    return old.comparison != Comparison.OTHER and low <= least and most <= high


def _bounds(term: Attribute) -> tuple[float, float]:
    value = term.value
    match term.comparison:
        case Comparison.LESS:
            return float("-inf"), value - 1
        case Comparison.AT_MOST:
            return float("-inf"), value
        case Comparison.EQUAL:
            return value, value
        case Comparison.AT_LEAST:
            return value, float("inf")
        case Comparison.MORE:
            return value + 1, float("inf")
    return float("-inf"), float("inf")
