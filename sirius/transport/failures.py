"""What a client makes of a call that failed: an error that says whose fault it was."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc

from sirius import errors
from sirius.errors import (
    NotPermitted,
    OutcomeUnknown,
    RequestRejected,
    SiriusError,
    TransportError,
    Unreachable,
    UsageError,
    WrongCertificate,
)
from sirius.transport import sirius_pb2 as pb
from sirius.transport import wire
from sirius.transport.security import Security, Tls

FAILURE: Final = "sirius-failure-bin"
"""The name under which a `Failure` travels with a call's status."""
_LOOK_S: Final = 2.0
_PERHAPS_TLS: Final = " (does it want TLS?)"
_UNWELCOME: Final = "it hangs up on our certificate: there is none, it has expired, or its authority is not known there"


def error_of(error: Any, address: str, security: Security) -> SiriusError:
    """Return the error of ours that a gRPC error means. May connect once more, to find out what is wrong with TLS."""
    code, details = error.code(), f"{address}: {error.details()}"
    for key, value in error.trailing_metadata() or ():
        if key == FAILURE:
            return rebuilt(wire.parsed(pb.Failure, value))
    match code:
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotPermitted(details)
        case grpc.StatusCode.UNAVAILABLE:
            return _unavailable(details, address, security)
        case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return Unreachable(f"{address} did not answer in time, or the client was closed")
        case grpc.StatusCode.UNIMPLEMENTED:
            return Unreachable(f"{address} is no Sirius node: {error.details()}")
    return TransportError(f"{details} ({code.name})")


@contextmanager
def open_channel(address: str) -> Iterator[None]:
    """Begin a call in here: if another thread closes the client in this moment, gRPC raises a `ValueError`."""
    try:
        yield
    except ValueError:
        raise Unreachable(f"{address} was not asked: the client was closed") from None


def rebuilt(failure: Any) -> SiriusError:
    """Return the error that a node has told of."""
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, SiriusError):
        try:
            known = kind(failure.reason)
        except TypeError:
            pass  # It is made of numbers, which did not travel; its words did.
        else:
            if known.outcome_unknown == failure.outcome_unknown:
                return known
    error = OutcomeUnknown if failure.outcome_unknown else RequestRejected
    return error(f"{failure.kind}: {failure.reason}")


def failed(found: Sequence[SiriusError]) -> SiriusError:
    """Return one error for all addresses that did not answer."""
    return found[0] if len(found) == 1 else Unreachable("; ".join(map(str, found)))


def _unavailable(details: str, address: str, security: Security) -> SiriusError:
    if not isinstance(security, Tls):
        return Unreachable(details + _PERHAPS_TLS * details.endswith("Socket closed"))
    try:
        is_alive = _shake_hands(address, security.context())
    except (ssl.SSLError, UsageError) as error:
        return WrongCertificate(f"{address}: {error}")
    except (OSError, ValueError):  # ValueError: the address is none
        return Unreachable(details)
    return Unreachable(details) if is_alive else WrongCertificate(f"{address}: {_UNWELCOME}")


def _shake_hands(address: str, context: ssl.SSLContext) -> bool:
    """Do what gRPC did, with a library that says what it does not like; say whether the other end went on.

    With TLS 1.3 a server refuses a client's certificate when the client thinks that all is well. A server that does
    not refuse it speaks first.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), _LOOK_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        try:
            return secure.recv(1) != b""
        except ConnectionError:
            return False
