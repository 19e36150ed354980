"""Asking a process of the broadcast layer what it says about itself."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from sirius.broadcast.net.hub import STATUS
from sirius.errors import TransportError, Unreachable
from sirius.transport import broadcast_pb2 as pb
from sirius.transport.failures import error_of
from sirius.transport.limits import TransportLimits
from sirius.transport.packets import parsed
from sirius.transport.security import Security

Json = dict[str, Any]
log = logging.getLogger("sirius.broadcast")
ASK_S: Final = 0.5
_ANSWER_S: Final = 2.0


class NoProxy(Unreachable):
    """Somebody answers who is none: there is no point in asking again."""


def status_of(
    address: str, security: Security, timeout_s: float, limits: TransportLimits | None = None
) -> Json:
    """Ask, and wait for the answer. Raises why there is none."""
    options = (limits or TransportLimits()).channel_options()
    with security.blocking_channel(address, options) as channel:
        try:
            data = channel.unary_unary(STATUS)(_REQUEST, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise NoProxy(
                    f"{address} is no proxy: a node of a cluster, or something else that speaks gRPC"
                ) from None
            raise error_of(error, address, security) from None
        return _json(address, data)


async def ask(channel: Any, address: str, timeout_s: float) -> Json:
    """Do the same over a channel of `grpc.aio` that is there already."""
    try:
        data = await channel.unary_unary(STATUS)(_REQUEST, timeout=timeout_s)
    except grpc.RpcError as error:
        raise Unreachable(f"{address}: {error.details()}") from None
    return _json(address, data)


async def ask_always(
    address: str,
    security: Security,
    limits: TransportLimits,
    take: Callable[[Json, float], None],
) -> None:
    """Ask again and again, and hand on each answer with the time of the question. Ends when it is cancelled."""
    async with security.channel(address, limits.channel_options()) as channel:
        while True:
            asked_at = time.monotonic()
            try:
                take(await ask(channel, address, _ANSWER_S), asked_at)
            except (TransportError, ValueError) as error:
                log.debug("%s: %s", address, error)
            await asyncio.sleep(ASK_S)


def _json(address: str, data: bytes) -> Json:
    found = json.loads(parsed(pb.StatusReply, data).json or "null")
    if not isinstance(found, dict):
        raise Unreachable(f"{address} says nothing about itself")
    return found


_REQUEST = pb.StatusRequest().SerializeToString()
