"""What a range proves, and which ranges fit together.

**Coverage.** A range counts for what its values cover without a gap from the first missing slot on, and for nothing
else. What the sender declares is checked against the values; if they disagree nothing is taken. (The ancestor went on
to the declared end, and inherited whatever was missing in between.) Holes are inside values: the value covers them.

**Mixing sources.** Logs of different nodes are compacted differently, and yet their parts fit. Take a log as a function
from keys to values, replayed up to a position x, and a source q with tombstone floor f. Behind x, take what q has.

- *x ≥ f: safe, whoever q is.* Look at the last record of a key up to q's tip. If it is behind x, q has it: nothing
  newer replaced it, and a delete behind the floor was never dropped. If not, q has nothing of that key behind x that
  could do harm. So prefix + compacted suffix = full replay.
- *x = 0: safe.* q's log alone replays to q's state: a dropped delete has nothing left to delete.
- *0 < x < f: safe only if the prefix is q's as well, of the same era.* Otherwise: the prefix has PUT k, q has dropped
  that PUT and then its DELETE, and k lives on here for ever. Even with q alone: it may have dropped both after it
  gave us the PUT, and without raising the floor if that was higher before. So an **era**, which changes with every
  such drop, goes with whatever is read, and a prefix that is all of one source and era has this as its **basis**.
  Consensus, a push or another source end it; from the floor on it is not needed any more.
- *Otherwise: resync.* Take the whole log anew, and drop the keys that it does not have.

**Passing it on.** Who took from below the floor f of q lacks the same deletes: its own floor rises to f first. Who took
from the floor on lacks none.

**Whole.** A source drops a value once it has a newer one, which may lie behind what it has sent so far. In between, a
key can be missing or old. The state is that of one moment again at the tip that the source had when it was read:
`whole` is the highest of those, and travels on to those who follow.

Both rules assume that a source gives only what is decided, and that a compacted log keeps the newest record of each
key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sirius.catchup.messages import Edition, Pull, Range, SegmentOffer
from sirius.errors import InvariantViolation
from sirius.paxos.values import Value
from sirius.types import NodeId, Seq


def coverage_fault(first: int, last: int, values: Sequence[Value | SegmentOffer]) -> str | None:
    """Say why values do not cover exactly `first` to `last`, if they do not."""
    expected = first
    for value in values:
        if value.first != expected or value.last < value.first:
            return f"{value.first} to {value.last} stands where {expected} should begin"
        expected = value.last + 1
    if expected != last + 1:
        return f"the values end at {expected - 1}, not at {last}"
    return None


def range_fault(asked: Pull, answer: Range) -> str | None:
    """Say why an answer proves nothing, if it does not."""
    if answer.first != asked.first or answer.last > asked.last:
        return f"{answer.first} to {answer.last} is no answer to {asked.first} to {asked.last}"
    if answer.last > answer.standing.tip:
        return f"a range up to {answer.last} from a log up to {answer.standing.tip}"
    return coverage_fault(answer.first, answer.last, answer.values)


class Basis(NamedTuple):
    """The one source, and the era of its log, from which all of a prefix came."""

    node: NodeId
    era: int


class Start(NamedTuple):
    """Where a log stands when its node starts.

    `basis` and `whole` are what they were before, if the driver has kept them. Without the one, a node that stopped in
    the middle of its first catch-up may have to begin again; without the other, it does not know how far it has to get.
    """

    position: Seq = Seq(0)
    edition: Edition = Edition()
    basis: Basis | None = None
    whole: Seq = Seq(0)


class Tail:
    """The end of a log: how far it goes, and what fits behind it."""

    def __init__(self, start: Start | None = None) -> None:
        self.position, _, self.basis, whole = start or Start()
        self.whole = max(whole, self.position)

    def era_of(self, node: NodeId) -> int | None:
        """Return the era of a source's log from which all of this came, if so."""
        return self.basis.era if self.basis and self.basis.node == node else None

    def fits(self, node: NodeId, edition: Edition) -> bool:
        """Say whether what a source has may stand behind what is here."""
        if self.position == 0 or self.position >= edition.floor:
            return True
        return self.basis == Basis(node, edition.era)

    def take(self, node: NodeId, edition: Edition, last: Seq, whole: Seq) -> None:
        """Go on to `last`, by what a source gave."""
        if not self.fits(node, edition):
            raise InvariantViolation(
                f"a part of {node} with the floor {edition.floor} does not fit behind {self.position}"
            )
        basis = Basis(node, edition.era)
        self.basis = basis if self.position == 0 or self.basis == basis else None
        self.position = last
        self.whole = max(self.whole, whole, last)

    def skip(self, last: Seq) -> None:
        """Go on to `last`, by what consensus decided."""
        if last > self.position:
            self.position = last
            self.whole = max(self.whole, last)
            self.basis = None

    def rest_of(self, values: Sequence[Value]) -> list[Value]:
        """Return what values have behind the end of this log; the first may have to be cut."""
        rest = [value for value in values if value.last > self.position]
        if rest and rest[0].first <= self.position:
            rest[0] = rest[0].cut(self.position + 1, rest[0].last)
        return rest
