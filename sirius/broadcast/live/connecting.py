"""`connect`: finding the proxy of a region, and what it has to say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from sirius.broadcast.live.session import Broadcast
from sirius.broadcast.live.settings import SessionSettings, ask
from sirius.broadcast.net.asking import Json, NoProxy
from sirius.errors import Unreachable, UsageError

_RETRY_S: Final = 0.1
_ASK_S: Final = 5.0


def connect(proxy: str | Sequence[str], **settings: Any) -> Broadcast:
    """Begin a session with the proxy of a region, or with the first of some that answers.

    Settings are those of `SessionSettings`. Raises `Unreachable`, or what is wrong with the certificates.
    """
    found = SessionSettings(**settings).secured()
    addresses = [proxy] if isinstance(proxy, str) else list(proxy)
    if not addresses:
        raise UsageError("connect needs the address of a proxy")
    return Broadcast(*_first_answer(addresses, found), found)


def _first_answer(addresses: Sequence[str], settings: SessionSettings) -> tuple[str, Json]:
    until = time.monotonic() + settings.timeout_s
    while True:
        errors: list[Unreachable] = []
        for address in addresses:
            left = max(0.1, until - time.monotonic())
            try:
                status = ask(address, settings, min(left, _ASK_S))
            except Unreachable as error:
                errors.append(error)
            else:
                if "streams" not in status:
                    raise UsageError(f"{address} is no proxy: it is a client like this one")
                return address, status
        if time.monotonic() >= until or all(isinstance(error, NoProxy) for error in errors):
            raise errors[-1]
        time.sleep(_RETRY_S)
