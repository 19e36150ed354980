"""Ports for processes that are yet to be started.

A port that the system hands out for the asking is free for a moment only: before the process that is to have it is up,
the system may hand it to somebody else, and any outgoing connection may get it, also one to that very port, which then
talks to itself. So these come from below the range that Linux hands out from, in turn, by a counter in a file that all
processes of a user share: tests that run side by side get different ones.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

_PORTS: Final = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody listens on, and that nobody else is told of for a long time."""
    with _counter() as numbers:
        found = list(islice(filter(_is_free, numbers), count))
    if len(found) < count:
        raise OSError(f"of the ports {_PORTS.start} to {_PORTS.stop - 1} only {found} are free")
    return found


@contextmanager
def _counter() -> Iterator[Iterator[int]]:
    """Yield each port once, from where the last caller was; others wait until this one has what it wants."""
    path = Path(tempfile.gettempdir(), f"sirius-ports-{os.getuid()}")
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        at = int(file.read() or random.randrange(len(_PORTS)))

        def numbers() -> Iterator[int]:
            nonlocal at
            for _ in _PORTS:
                at = (at + 1) % len(_PORTS)
                yield _PORTS[at]

        yield numbers()
        file.truncate(0)
        file.write(b"%d" % at)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
