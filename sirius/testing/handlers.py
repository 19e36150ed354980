"""Checks a request handler: does it reach the same state on all nodes, after replay, after compaction?

>>> from sirius.testing import check_handler
>>> def test_titles_are_the_same_everywhere():
...     check_handler(Titles)

Real engines, real logs and real catch-up run in simulated clusters whose networks, disks and processes fail. Each node
has a handler of its own; after every restart it is a new one, which is given the (compacted) log from the beginning.
What a handler holds is compared with a plain run of the same updates:

1. after every block of updates, on every node, and on all nodes together at the end;
2. after every restart, and when a node takes over another's whole log;
3. after compaction of every node's log and another restart.

Whatever depends on more than the updates and their order is found this way, unless all of it happens to be the same
within one process: `hash()` of a string, today's date and the environment are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sirius.errors import UsageError
from sirius.handler import RequestHandler
from sirius.testing._handler_faults import HandlerDiverged, HandlerRaised
from sirius.testing._handler_lives import Counts, H, Judge, Subject
from sirius.testing._handler_run import run
from sirius.testing._handler_updates import Draw, Drawn, UsersError, source

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Counts", "Draw", "Drawn", "HandlerDiverged", "HandlerRaised", "check_handler"]

_CONTAINERS: Final = (dict, list, set, bytearray, deque)


def check_handler(
    make_handler: Callable[[], H],
    *,
    state: Callable[[H], Any] | None = None,
    updates: Draw | SearchStrategy[Drawn] | None = None,
    seeds: Iterable[int] = range(3),
) -> Counts:
    """Run a handler in one simulated cluster a seed, or raise `HandlerDiverged`; return how much was compared.

    - `make_handler` makes a new handler: its class, if that needs no arguments.
    - `state` returns what counts of a handler, as something that can be compared and copied: all attributes, unless
      you say otherwise. It is called some hundred times a seed.
    - `updates` draws an update, `("PUT", key, body)` or `("DELETE", key)`: a function of a `random.Random`, or a
      Hypothesis strategy. Take few keys, so that they are overwritten and deleted. Without it keys are `key/0`,
      `key/1` and so on, and bodies are short and of no meaning.
    - `seeds` are the clusters: which faults there are, and when. The same seed is the same run. One takes a second.

    A handler may refuse an update with `SiriusResult.rejected`; one that raises is reported with the update.
    """
    __tracebackhide__ = True
    subject = Subject(make_handler, state or attributes, "state" if state else "handler")
    totals = Counts()
    try:
        for seed in seeds:
            run(Judge(subject, seed, totals), None if updates is None else source(updates, seed))
    except UsersError as carrier:
        raise (carrier.__cause__ or carrier) from None
    except HandlerDiverged as fault:
        # Without the frames of the simulator: where it was found says nothing about the handler.
        raise fault.with_traceback(None) from fault.__cause__
    if not totals.lives:
        raise UsageError("no seeds: nothing was checked")
    return totals


def attributes(handler: Any) -> SimpleNamespace:
    """Return all attributes of a handler: the state, unless the user says what is."""
    return SimpleNamespace(**{**_shared(type(handler)), **vars(handler)})


def _shared(handler: type) -> dict[str, Any]:
    """Return what is kept in the class and can change: hardly ever on purpose."""
    classes = [each for each in handler.__mro__ if each not in RequestHandler.__mro__]
    return {
        name: value
        for each in reversed(classes)
        for name, value in vars(each).items()
        if isinstance(value, _CONTAINERS) and not name.startswith("__")
    }
