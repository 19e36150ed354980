"""What can be wrong with a handler, told to the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from textwrap import fill
from typing import Final, NamedTuple

from sirius.testing._handler_states import Difference, short
from sirius.wal import Op

_SHOWN_MAX: Final = 4

SHARED: Final = (
    "a handler that was given no update at all has changed too: the handlers share something, perhaps a class "
    "attribute, a global or a default argument. Make it in __init__."
)
NOT_DETERMINISTIC: Final = (
    "the same updates in the same order led to two states. The handler depends on something else: the time, "
    "random numbers, id(), what handle_get was asked, or something outside of it."
)
COMPACTED: Final = (
    "the log was compacted: of each key only the newest update is left, and deletes of long ago are gone. The "
    "state must follow from these alone: it cannot count updates, remember old ones, ignore deletes, or keep a value "
    "when it rejects the next one of the key."
)
FROM_THE_START: Final = (
    "handlers that were just made must be equal. If this part does not come from the updates, leave it out: "
    "check_handler(..., state=lambda handler: handler.what_counts)."
)
NOT_THERE: Final = "a delete may name a key that is not there: it never was, or compaction dropped the put before it."
NO_REFUSAL: Final = (
    "a handler that raises stops its node. If no node can take such an update, remove what the key held and return "
    "SiriusResult.rejected(reason): after compaction nothing else is left of the key."
)


class Where(NamedTuple):
    """Which instance of the handler something is about."""

    handler: str
    seed: int
    who: str = "the plain run"
    how: str = ""

    def at(self, seq: int) -> str:
        place = f"seed {self.seed}, {self.who}, sequence number {seq}"
        return f"{place}, {self.how}" if self.how else place

    def with_holes(self) -> Where:
        """Say that the log has been compacted."""
        how = f"{self.how}, from a compacted log" if self.how else "with a compacted log"
        return self._replace(how=how)

    @property
    def again(self) -> str:
        return f"check_handler(..., seeds=[{self.seed}]) or pytest --sirius-seed {self.seed}"


class Given(NamedTuple):
    """One update, as the handler was given it."""

    seq: int
    op: Op
    key: str
    body: bytes

    def __str__(self) -> str:
        parts = [self.op.name, short(self.key), *([short(self.body)] if self.op == Op.PUT else [])]
        return " ".join(parts)


class HandlerDiverged(AssertionError):
    """Nodes that were given the same updates do not hold the same state."""

    __module__ = "sirius.testing"


class HandlerRaised(HandlerDiverged):
    """The handler raised, or returned no result. Its node stops there, and the others go on."""

    __module__ = "sirius.testing"


def _lines(headline: str, **lines: str) -> str:
    return "\n".join([headline, *(_line(f"{name}: {text}") for name, text in lines.items())])


def _line(text: str) -> str:
    return fill(text, 100, initial_indent="  ", subsequent_indent="    ", break_long_words=False)


def diverged(where: Where, seq: int, found: Iterable[Difference], why: str) -> HandlerDiverged:
    """A node has another state than the plain run."""
    return HandlerDiverged(
        _lines(
            f"{where.handler} has another state on {where.who} than in a plain run of the same updates",
            where=where.at(seq),
            **_shown(found, where.who, "in the plain run"),
            why=why,
            again=where.again,
        )
    )


def unlike_from_the_start(where: Where, found: Iterable[Difference]) -> HandlerDiverged:
    """Two handlers differ that were given nothing."""
    return HandlerDiverged(
        _lines(
            f"two new handlers {where.handler} differ before the first update",
            **_shown(found, "one", "in the other"),
            why=FROM_THE_START,
        )
    )


def _shown(found: Iterable[Difference], here: str, there: str) -> dict[str, str]:
    some = list(islice(found, _SHOWN_MAX + 1))
    preposition = "on " if here.startswith("node") else "in "
    shown = {
        each.path: f"{each.here} {preposition}{here}, {each.there} {there}"
        for each in some[:_SHOWN_MAX]
    }
    return shown | ({"and": "more"} if len(some) > _SHOWN_MAX else {})


def raised(where: Where, given: Given, error: Exception) -> HandlerRaised:
    """The handler raised."""
    lost_key = given.op == Op.DELETE and isinstance(error, LookupError | ValueError)
    return HandlerRaised(
        _lines(
            f"{where.handler} raised {type(error).__name__}: {error}",
            update=str(given),
            where=where.at(given.seq),
            why=NOT_THERE if lost_key else NO_REFUSAL,
            again=where.again,
        )
    )


def no_result(where: Where, given: Given, result: object) -> HandlerRaised:
    """The handler returned something else."""
    return HandlerRaised(
        _lines(
            f"{where.handler} returned {short(result)}, which is no SiriusResult",
            update=str(given),
            where=where.at(given.seq),
            why="end with `return SiriusResult.none()`, or .some(value), or .rejected(reason).",
            again=where.again,
        )
    )


def raised_by_get(where: Where, seq: int, key: str, error: Exception) -> HandlerRaised:
    """The handler raised when it was asked for a key."""
    return HandlerRaised(
        _lines(
            f"{where.handler} raised {type(error).__name__}: {error}",
            request=f"GET {short(key)}",
            where=where.at(seq),
            why="a GET may ask for a key that is not there: return SiriusResult.none().",
            again=where.again,
        )
    )


def shared(where: Where, found: Iterable[Difference]) -> HandlerDiverged:
    """A handler has changed that was given nothing."""
    return HandlerDiverged(
        _lines(
            f"handlers {where.handler} share their state",
            where=f"seed {where.seed}",
            **_shown(found, "a handler without updates", "before"),
            why=SHARED,
            again=where.again,
        )
    )
