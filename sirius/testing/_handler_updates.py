"""The updates that a handler is given in simulated clusters: the user's own, drawn one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from sirius.errors import SiriusError, UsageError
from sirius.testing._handler_states import short
from sirius.testing.simulator.clients import Client, Clients
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.settings import LOG_CONFIG, stream
from sirius.wal import Op, Update
from sirius.wal.record import Limits, check_updates, key_bytes

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Drawn = tuple[Literal["PUT"], str, bytes] | tuple[Literal["DELETE"], str]
"""What a source of updates returns."""
Draw = Callable[[random.Random], Drawn]
LIMITS: Final = Limits(LOG_CONFIG.limits.key_bytes_max, 16 * 1024, 1024 * 1024)
"""Simulated disks are small."""
_POOL: Final = 300


class UsersError(Exception):
    """Carries an error of the user's own code, its cause, out of a simulation, which would take it for one of ours."""


@contextmanager
def users_code() -> Iterator[None]:
    """Whatever is raised in here is for the user to see as it is."""
    try:
        yield
    except Exception as error:
        raise UsersError from error


def source(updates: Draw | SearchStrategy[Drawn], seed: int) -> Draw:
    """Return a function that draws updates."""
    return updates if callable(updates) else _pool(updates, seed).draw


class _Pool:
    """Examples of a Hypothesis strategy. They come again and again, so that keys are overwritten and deleted."""

    def __init__(self, drawn: list[Drawn]) -> None:
        self._drawn = drawn

    def draw(self, rng: random.Random) -> Drawn:
        return rng.choice(self._drawn)


def _pool(strategy: SearchStrategy[Drawn], seed: int) -> _Pool:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis.strategies import SearchStrategy

    if not isinstance(strategy, SearchStrategy):
        raise UsageError(
            f"updates is a function of a random.Random or a Hypothesis strategy, not {strategy!r}"
        )
    drawn: list[Drawn] = []

    @settings(
        max_examples=_POOL,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seeded(seed)
    @given(strategy)
    def collect(update: Drawn) -> None:
        drawn.append(update)

    collect()
    return _Pool(drawn)


class DrawingClients(Clients):
    """Clients that write what the user draws."""

    def __init__(self, cluster: Cluster, draw: Draw) -> None:
        super().__init__(cluster)
        self._draw = draw
        self._drawing_rng: random.Random = stream(cluster.settings.seed, "updates")

    def _update(self, _client: Client) -> Update:
        with users_code():
            return as_update(self._draw(self._drawing_rng))


def as_update(drawn: Any) -> Update:
    """Turn what the user drew into an entry of the log, or say what is wrong with it."""
    try:
        update = _entry(drawn)
        check_updates([update], LIMITS)
    except SiriusError as error:
        reason = str(error).removeprefix("entry 0 of 1: ")
        raise UsageError(f"updates drew {short(drawn)}: {reason}") from None
    return update


def _entry(drawn: Any) -> Update:
    match drawn:
        case ("PUT", key, bytes(body)):
            return Update(Op.PUT, key_bytes(key), body)
        case ("PUT", _, body):
            raise UsageError(f"a body is bytes, not {type(body).__name__}")
        case ("DELETE", key):
            return Update(Op.DELETE, key_bytes(key))
    raise UsageError('it is neither ("PUT", key, body) nor ("DELETE", key)')
