"""Handlers in the nodes of a simulated cluster, and one outside of it that shows what they should hold.

A node's process has one handler for as long as it lives, and gives it every decided update in order. After a restart
there is a new one, which is given the log from the beginning; likewise when a node takes over a whole log. Outside,
the *plain run* is given all updates that were decided, one after the other, nothing left out.

Whenever a handler has been given all of its node's log, it has to hold what the plain run held at that point. Where a
log has holes (it was compacted, or filled from one that was), something newer made an entry needless: only behind that
can its handler hold the same, and is not compared before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from sirius.errors import UsageError
from sirius.handler import RequestHandler, SiriusResult
from sirius.testing import _handler_faults as faults
from sirius.testing._handler_faults import Given, HandlerDiverged, Where
from sirius.testing._handler_states import differences, short
from sirius.testing._handler_updates import users_code
from sirius.testing.simulator.truth import Fact
from sirius.wal import Op

H = TypeVar("H", bound=RequestHandler)

_RERUNS: Final = 3
_ASK_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Subject(Generic[H]):
    """What the user wants to have checked."""

    make: Callable[[], H]
    state: Callable[[H], Any]
    root: str
    """How a state is called in messages."""

    def new(self) -> H:
        with users_code():
            return self.make()

    def state_of(self, handler: H) -> Any:
        with users_code():
            return self.state(handler)

    def copy_of(self, handler: H) -> Any:
        state = self.state_of(handler)
        try:
            return deepcopy(state)
        except Exception as error:
            raise HandlerDiverged(
                f"the state of {type(handler).__name__} cannot be copied ({error}). Give check_handler a function that "
                "returns what counts, without locks, files and the like: state=lambda handler: handler.what_counts"
            ) from error


class Life(Generic[H]):
    """One instance of the handler, and everything that it was given."""

    def __init__(self, subject: Subject[H], where: Where) -> None:
        self._subject = subject
        self.handler = subject.new()
        self.where = where
        self.given: list[Given] = []
        self.position = 0
        self.has_holes = False
        self.whole_from = 0
        """Behind this sequence number nothing is missing because of holes."""

    @property
    def state(self) -> Any:
        return self._subject.state_of(self.handler)

    def take(self, facts: dict[int, Fact], last: int) -> None:
        """Give the handler the entries of one block."""
        self.has_holes = self.has_holes or len(facts) < last - self.position
        for seq, fact in facts.items():
            if fact.op in (Op.PUT, Op.DELETE):
                self.give(Given(seq, Op(fact.op), fact.key.decode(), fact.body))
        self.position = last

    def give(self, given: Given) -> None:
        """Give the handler one update."""
        __tracebackhide__ = True
        self.given.append(given)
        handler = self.handler
        try:
            if given.op == Op.PUT:
                result = handler.handle_put(given.key, given.body)
            else:
                result = handler.handle_delete(given.key)
        except Exception as error:
            raise faults.raised(self.where, given, error) from error
        if not isinstance(result, SiriusResult):
            raise faults.no_result(self.where, given, result)

    def ask(self, rng: random.Random) -> None:
        """Look something up, as readers do on some nodes and not on others."""
        has_get = type(self.handler).handle_get is not RequestHandler.handle_get
        if not has_get or not self.given or rng.random() >= _ASK_SHARE:
            return
        asked = rng.choice(self.given)
        try:
            self.handler.handle_get(asked.key)
        except Exception as error:
            raise faults.raised_by_get(self.where, self.position, asked.key, error) from error


@dataclass(slots=True)
class Counts:
    """What a check consisted of."""

    updates: int = 0
    lives: int = 0
    comparisons: int = 0
    compacted: int = 0
    """Comparisons after a replay of a compacted log."""


@dataclass(slots=True)
class Judge(Generic[H]):
    """Knows what every handler should hold."""

    subject: Subject[H]
    seed: int
    counts: Counts = field(default_factory=Counts)
    _name: str = field(init=False)
    _plain: Life[H] = field(init=False)
    _bystander: H = field(init=False)
    _before: Any = field(init=False)
    _states: dict[int, Any] = field(default_factory=dict)
    _asking: random.Random = field(init=False)
    _has_changed: bool = False

    def __post_init__(self) -> None:
        self._bystander = self.subject.new()
        self._name = type(self._bystander).__name__
        self._asking = random.Random(f"{self.seed}/asking")
        self._plain = Life(self.subject, Where(self._name, self.seed))
        found = list(self._differences(self._bystander, self._plain.state))
        if found:
            raise faults.unlike_from_the_start(self._plain.where, found)
        self._before = self._states[0] = self.subject.copy_of(self._plain.handler)

    def begin(self, who: str, how: str) -> Life[H]:
        """Make a handler for a process that begins, or for a log that is read again."""
        self.counts.lives += 1
        return Life(self.subject, Where(self._name, self.seed, who, how))

    def follow(self, facts: list[Fact]) -> None:
        """Let the plain run catch up with all that was decided."""
        position, last = self._plain.position, len(facts)
        if last > position:
            self._plain.take(dict(enumerate(facts[position:], position + 1)), last)
            self._states[last] = self.subject.copy_of(self._plain.handler)
            self._has_changed = self._has_changed or self._differs(self._plain.handler)

    def compare(self, life: Life[H]) -> None:
        """See that a handler that has been given all there is holds what it should."""
        if life.position not in self._states or life.position < life.whole_from:
            # A block may end where none of the first node's did; the next one will do.
            return
        self.counts.comparisons += 1
        self.counts.compacted += life.has_holes
        found = list(self._differences(life.handler, self._states[life.position]))
        if found:
            where = life.where.with_holes() if life.has_holes else life.where
            raise faults.diverged(where, life.position, found, self._why(life))

    def ask(self, life: Life[H]) -> None:
        life.ask(self._asking)

    def finish(self) -> None:
        """See that there was something to compare."""
        self.counts.updates += len(self._plain.given)
        if self._differs(self._bystander):
            raise faults.shared(self._plain.where, self._differences(self._bystander, self._before))
        if not self._has_changed:
            raise UsageError(
                f"after {len(self._plain.given)} updates the state of {self._name} still is what it was before: "
                f"{short(self._plain.state)}. If it is kept elsewhere (in the class, a module, a database), give "
                "check_handler a function that returns it: state=lambda handler: ..."
            )

    # ------------------------------------------------------------------ why

    def _differences(self, handler: H, expected: Any) -> Iterable[Any]:
        return differences(self.subject.state_of(handler), expected, self.subject.root)

    def _differs(self, handler: H) -> bool:
        """Say whether a handler differs from a new one."""
        return any(self._differences(handler, self._before))

    def _why(self, life: Life[H]) -> str:
        if self._shares(life):
            return faults.SHARED
        if life.has_holes and not self._differs_again(life):
            return faults.COMPACTED
        return faults.NOT_DETERMINISTIC

    def _shares(self, life: Life[H]) -> bool:
        """Say whether a handler that is given nothing changes when another is given something."""
        if self._differs(self._bystander):
            return True
        other, idle = Life(self.subject, life.where), self.subject.new()
        before = self.subject.copy_of(idle)
        for given in life.given:
            other.give(given)
            if any(self._differences(idle, before)):
                return True
        return False

    def _differs_again(self, life: Life[H]) -> bool:
        """Say whether other handlers that are given the same do something else."""
        for _ in range(_RERUNS):
            other = Life(self.subject, life.where)
            for given in life.given:
                other.give(given)
            if any(self._differences(life.handler, other.state)):
                return True
        return False
