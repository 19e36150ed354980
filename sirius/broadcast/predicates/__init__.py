"""Predicates: which earlier events a GC event collects.

Sprinkler has "older than a sequence number" and "the same key", and leaves a richer language for later (section 7),
with two conditions: proxies must not drown in evaluating it, and garbage collection must be final (section 2.1). So
there is no negation, and `seq` and `time` can only be compared downwards. That makes three things true:

- *Cheap.* `seq` and `time` rise along a stream and are found by bisection. Topics are numbered, and a pattern is
  tried once a topic. Keys and attributes are looked at only where the rest holds, all at once.
- *Closed.* Whatever a predicate without attributes says of an event, it says of all earlier events with the same
  topic and key. So it may collect a keyed event together with what that one stands for.
- *Provable.* `implies` shows that a new predicate covers an old one. Where it cannot, the old GC event stays.

`syntax` turns text into `terms`; `evaluate` looks for matching rows of a history.
"""

from sirius.broadcast.predicates.evaluate import Table, matching
from sirius.broadcast.predicates.proof import covers, is_closed
from sirius.broadcast.predicates.syntax import PredicateError, parse
from sirius.broadcast.predicates.terms import Predicate, matches

__all__ = [
    "Predicate",
    "PredicateError",
    "Table",
    "covers",
    "is_closed",
    "matches",
    "matching",
    "parse",
]
