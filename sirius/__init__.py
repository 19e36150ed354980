"""Sirius keeps a reference dataset in the memory of every application server.

The application reads its own data structures. Sirius orders the updates, keeps them in a log on
disk, brings a node back after a crash, and hands the updates to whoever follows.

The promised names are here. They are loaded when they are first used, so that importing `sirius`
costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirius.config import SiriusConfig
    from sirius.handler import RequestHandler, SiriusResult
    from sirius.node import Sirius

__all__ = ["RequestHandler", "Sirius", "SiriusConfig", "SiriusResult", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "RequestHandler": "sirius.handler",
    "Sirius": "sirius.node",
    "SiriusConfig": "sirius.config",
    "SiriusResult": "sirius.handler",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'sirius' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
