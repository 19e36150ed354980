"""Stand-ins for the outside world, for the tests of whoever builds on Sirius.

Names are imported when they are first used: the pytest plugin lives in this package, and every run of pytest loads it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirius.testing._gate import CrashMode, Operation, SimulatedCrash
    from sirius.testing.filesystem import MemoryFileSystem
    from sirius.testing.handlers import HandlerDiverged, HandlerRaised, check_handler

__all__ = [
    "CrashMode",
    "HandlerDiverged",
    "HandlerRaised",
    "MemoryFileSystem",
    "Operation",
    "SimulatedCrash",
    "check_handler",
]

_HOMES = {
    "CrashMode": "sirius.testing._gate",
    "HandlerDiverged": "sirius.testing.handlers",
    "HandlerRaised": "sirius.testing.handlers",
    "MemoryFileSystem": "sirius.testing.filesystem",
    "Operation": "sirius.testing._gate",
    "SimulatedCrash": "sirius.testing._gate",
    "check_handler": "sirius.testing.handlers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
