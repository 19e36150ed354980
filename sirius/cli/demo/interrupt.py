"""Ctrl-C that does not get lost. Python drops what is raised in a destructor, also a `KeyboardInterrupt`."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Raises `KeyboardInterrupt` where the signal finds us, and at every `check` from then on."""

    def __init__(self) -> None:
        self._came = False

    def watch(self) -> None:
        """Take the signals that ask for the end: SIGTERM is as good a reason to clean up as Ctrl-C."""
        for number in _SIGNALS:
            signal.signal(number, self._take)
        sys.unraisablehook = _dropped

    def check(self) -> None:
        """Raise if one came, whatever became of it."""
        if self._came:
            raise KeyboardInterrupt

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt


def _dropped(what: UnraisableHookArgs) -> None:
    """An interrupt in a destructor is no news: it is remembered."""
    if what.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(what)
