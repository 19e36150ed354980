"""Waiting for things to happen, with a deadline and never by hope."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

DEADLINE_S: Final = 30.0


def until(done: Callable[[], object], what: str = "it", deadline_s: float = DEADLINE_S) -> None:
    """Return when `done` says so; fail if it does not."""
    end = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < end, f"{what} did not come about within {deadline_s} s"
        time.sleep(0.001)


class Threads:
    """Threads that are joined at the end, and whose errors are the test's."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, call: Callable[..., object], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(call, arguments), daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _run(self, call: Callable[..., object], arguments: Sequence[Any]) -> None:
        try:
            call(*arguments)
        except BaseException as error:
            self._errors.append(error)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a thread hangs"
        for error in self._errors:
            raise error

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.join()
