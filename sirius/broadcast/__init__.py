"""The broadcast layer: events that reach every cache of every region, without loss and in order.

After Sprinkler (Middleware 2013). An event belongs to a stream, and each stream to one proxy, which numbers its
events. Proxies pass streams on to each other (`proxy`); in a region, clients pass them on among themselves
(`client`). Events say which earlier ones they make needless, so what has to be kept and caught up with stays small
(`history`, `predicates`).

**What must never happen.** A client is given an event twice, or one behind a gap; or it is not given an event, and
never an event that collects it. Positions only move over what a batch covers, and a batch covers its range
completely (`events`).

**Pure machines.** `Proxy` and `Client` take messages, requests and the time, and hand back `Effects`. They open no
socket and read no clock. `sirius.testing.broadcast` runs them under faults, from a seed.

**Reading order.** `events`, `limits`, `wire`; `predicates`; `history`; `messages`, `config`, `context`; `recent`,
`ahead`, `membership`; `proxy`; `client`; `chain` for proxies that are replicated, `disk` for histories in logs and logs
that are streams. Decisions 0012 and 0015 give the reasons.

The promised names are here, and are loaded when they are first used: whoever needs a cache alone need not load numpy
or gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirius.broadcast.live import (
        Broadcast,
        LocalProxy,
        Receipt,
        Received,
        Span,
        Subscription,
        connect,
    )

__all__ = ["Broadcast", "LocalProxy", "Receipt", "Received", "Span", "Subscription", "connect"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'sirius.broadcast' has no attribute {name!r}")
    return getattr(import_module("sirius.broadcast.live"), name)


def __dir__() -> list[str]:
    return __all__
