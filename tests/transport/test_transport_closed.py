"""A client that another thread closes in the moment in which a call begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sirius.errors import Unreachable
from sirius.transport.client import Client
from sirius.wal.record import Op, Update

ADDRESS = "127.0.0.1:1"
CALLS: dict[str, Callable[[Client], object]] = {
    "status": Client.status,
    "tail": lambda client: list(client.tail()),
    "publish": lambda client: client.publish([Update(Op.PUT, b"key", b"")]),
}


@pytest.mark.parametrize("call", CALLS)
def test_it_is_as_if_nobody_had_answered(call: str) -> None:
    with Client([ADDRESS]) as client:
        # What `close` does to the channel that the other thread has in its hand already.
        client._channel(ADDRESS).close()
        with pytest.raises(Unreachable, match=f"{ADDRESS} was not asked: the client was closed"):
            CALLS[call](client)
