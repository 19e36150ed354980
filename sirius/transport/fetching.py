"""One long answer of another node, read off the socket to where it is used.

Whoever takes a log as files takes hundreds of megabytes through one gRPC method, which has a request and a stream of
answers. gRPC for Python makes new objects in fresh memory of them, for five times the processor time of reading a
socket. So this end of the call is written by hand, blocking, for this kind of call alone; `http2` knows the bytes::

    kernel ── content, with one `recv` a frame ──► the caller's buffer
       └───── all else, some 14 bytes a frame ──► `http2.Incoming` ── pings' answers, windows ──► kernel

The other end is a gRPC server like any other, on the one port that a node has. What it says of a call that fails means
the same here as everywhere (`failures`).

**Waiting.** `MSG_WAITALL` lets the kernel wait until a buffer is full, where each wake-up would cost a fight for the
interpreter lock. A time-out of Python's own makes that void, so the kernel has the time-out, too (`SO_RCVTIMEO`). TLS
comes in records of 16 kB at most, and has neither.

The other end pings, and takes a connection for dead that does not answer within its `keepalive_timeout_s`. Only who
reads can answer: who takes longer than that from one read to the next has to expect an `Unreachable`.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

import grpc

from sirius.errors import SiriusError, Unreachable, WrongCertificate
from sirius.transport import http2
from sirius.transport.failures import FAILURE, error_of
from sirius.transport.security import Security

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_UNREADABLE: Final = "the call failed (its status is not readable)"


class Fetch:
    """A call under way. One thread reads; any thread may close it."""

    def __init__(
        self, connection: socket.socket, address: str, security: Security, timeout_s: float
    ) -> None:
        self._connection = connection
        self._address = address
        self._security = security
        self._timeout_s = timeout_s
        self._incoming = http2.Incoming(address)
        self._flags = 0
        if not isinstance(connection, ssl.SSLSocket):
            self._flags = socket.MSG_WAITALL
            _let_the_kernel_time_out(connection, timeout_s)
        self._lock = threading.Lock()
        self._busy = False
        self._closed = False

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer with what the other end sends, and return how much of it: less than all of it only at the end.

        0 is the end, of a call that went well; if it did not, or does not go on, an error of ours is raised, and the
        call is closed. Blocks for as long as something comes: the time-out counts from one byte of content to the
        next, and may be noticed when it has passed twice.
        """
        with self._connected():
            return self._fill(buffer)

    def close(self) -> None:
        """Give up the call, if it has not ended. Who reads gets an `Unreachable`. Does not block."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket; but while somebody uses it, only wake that thread: another file may get the number."""
        if not self._busy:
            self._connection.close()
            return
        with suppress(OSError):  # The other end may have hung up before.
            # Not the method of a TLS socket: it would go on as a plain one, and read what is encrypted.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Use the socket in here: what goes wrong is an error of ours, and ends the call."""
        self._begin()
        try:
            yield
        except OSError as error:
            self._closed, was_closed = True, self._closed
            raise self._given_up() if was_closed else self._error_of(error) from None
        except BaseException:
            self._closed = True
            raise
        finally:
            with self._lock:
                self._busy = False
                if self._closed:
                    self._hang_up()

    def _begin(self) -> None:
        with self._lock:
            if self._closed:
                raise self._given_up()
            self._busy = True

    def _start(self, path: str, request: bytes) -> None:
        scheme = "http" if self._flags else "https"
        with self._connected():
            self._connection.sendall(http2.opening(self._address, scheme, path, request))

    def _fill(self, buffer: memoryview) -> int:
        incoming, filled, heard_at = self._incoming, 0, monotonic()
        while filled < len(buffer) and incoming.ending is None:
            if content := incoming.content:
                count = self._receive(buffer[filled : filled + content])
                incoming.passed(count)
                filled += count
                heard_at = monotonic()
            elif monotonic() - heard_at > self._timeout_s:
                raise TimeoutError  # Pings alone are no answer.
            else:
                incoming.take(self._exactly(incoming.wants))
                self._answer()
        if incoming.ending is not None and incoming.ending.status != 0:
            raise error_of(_Failed(incoming.ending), self._address, self._security)
        return filled

    def _answer(self) -> None:
        # To send nothing is a call of the kernel, too: the interpreter lock is let go, and is not back at once.
        if answers := self._incoming.answers():
            self._connection.sendall(answers)

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view, at = memoryview(data), 0
        while at < count:
            at += self._receive(view[at:])
        return bytes(data)

    def _receive(self, view: memoryview) -> int:
        """Read some bytes. The kernel may have a few left also when the call was closed, which are of no use then."""
        count = self._connection.recv_into(view, len(view), self._flags)
        if not count or self._closed:
            raise ConnectionError("it hung up in the middle of its answer")
        return count

    def _given_up(self) -> Unreachable:
        return Unreachable(f"{self._address}: the call was closed")

    def _error_of(self, error: OSError) -> SiriusError:
        if isinstance(error, BlockingIOError | TimeoutError):
            return Unreachable(f"{self._address}: nothing came for {self._timeout_s} s")
        if self._incoming.greeted:
            return Unreachable(f"{self._address}: {error}")
        if isinstance(error, ssl.SSLError):
            return WrongCertificate(f"{self._address}: {error}")
        return error_of(_HungUp(), self._address, self._security)


def fetch(address: str, path: str, request: bytes, security: Security, timeout_s: float) -> Fetch:
    """Connect, send a request, and return without waiting for an answer. Blocks for `timeout_s` at most, thrice:
    to connect, to shake hands, and to send."""
    try:
        connection = security.connect(address, timeout_s)
    except ssl.SSLError as error:
        raise WrongCertificate(f"{address}: {error}") from None
    except (OSError, ValueError, OverflowError) as error:  # The latter two: the address is none.
        raise Unreachable(f"{address}: {error}") from None
    fetching = Fetch(connection, address, security, timeout_s)
    fetching._start(path, request)
    return fetching


class _Failed:
    """A call's end, as gRPC would tell of it."""

    def __init__(self, ending: http2.Ending) -> None:
        self._ending = ending

    def code(self) -> Any:
        return _CODES.get(self._ending.status, grpc.StatusCode.UNKNOWN)

    def details(self) -> str:
        return _UNREADABLE if self._ending.status is None else self._ending.message

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        """Return what a node tells of its error. Binary values begin with a zero if they are not in base64."""
        failure = self._ending.headers.get(FAILURE.encode(), b"")
        return [(FAILURE, failure[1:])] if failure[:1] == b"\0" else []


class _HungUp:
    """A connection that ended before the other end has said anything, as gRPC would tell of it."""

    def code(self) -> Any:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "Socket closed"

    def trailing_metadata(self) -> None:
        return None


def _let_the_kernel_time_out(connection: socket.socket, timeout_s: float) -> None:
    connection.settimeout(None)
    span = struct.pack("@ll", *divmod(max(1, round(timeout_s * 1e6)), 10**6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
