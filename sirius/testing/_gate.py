"""The gate that every call to the disk in memory passes: calls are numbered, some fail, one is the last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from errno import (
    EBADF,
)
from typing import Literal

from sirius.testing._inodes import error

CrashMode = Literal["before", "partial"]
Operation = Literal[
    "open",
    "read",
    "append",
    "truncate",
    "allocate",
    "sync",
    "forget",
    "size",
    "replace",
    "remove",
    "mkdir",
    "rmdir",
    "listdir",
    "exists",
    "isdir",
    "sync_dir",
    "lock",
    "identity",
]


class SimulatedCrash(BaseException):
    """The process died at this call. Not an `Exception`, so that no handler mistakes it for one."""


@dataclass(slots=True)
class Failure:
    operation: str
    path_contains: str
    errno: int
    times: int

    def hits(self, operation: str, path: str) -> bool:
        wanted = self.operation == operation and self.path_contains in path
        return wanted and self.times > 0


@dataclass(slots=True)
class Gate:
    """Every call passes here under the guard: some are numbered, some fail, one may be the last."""

    guard: threading.RLock = field(default_factory=threading.RLock)
    operations: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    crash_at: int | None = None
    crash_mode: CrashMode = "before"
    crashed: bool = False
    dead: bool = False

    def copy(self) -> Gate:
        failures = [replace(failure) for failure in self.failures]
        return replace(
            self, guard=threading.RLock(), operations=list(self.operations), failures=failures
        )

    def admit(self, operation: Operation, path: str) -> None:
        """Let a call pass that changes nothing."""
        self._refuse_the_dead(operation, path)
        self._fail(operation, path)

    def admit_change(
        self, operation: Operation, path: str, partly: Callable[[], object] | None = None
    ) -> None:
        """Let a call pass that changes something; `partly` does half of it."""
        self._refuse_the_dead(operation, path)
        self.operations.append((operation, path))
        if len(self.operations) == self.crash_at:
            self.crashed = True
            if partly is not None and self.crash_mode == "partial":
                partly()
            self._refuse_the_dead(operation, path)
        self._fail(operation, path)

    def _refuse_the_dead(self, operation: str, path: str) -> None:
        if self.dead:
            raise error(EBADF, path)
        if self.crashed:
            raise SimulatedCrash(f"crashed at call {self.crash_at}; {operation} {path!r}")

    def _fail(self, operation: str, path: str) -> None:
        for failure in self.failures:
            if failure.hits(operation, path):
                failure.times -= 1
                raise error(failure.errno, path)
