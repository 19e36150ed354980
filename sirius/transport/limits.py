"""Every bound of the transport, by name."""

from __future__ import annotations

import resource
from dataclasses import dataclass, fields

from sirius.errors import UsageError
from sirius.wal.record import DEFAULT_LIMITS, Limits

Options = list[tuple[str, int]]
"""Arguments of a gRPC channel or server."""

_ENVELOPE_BYTES_MAX = 1024 * 1024
"""What a message has around its block at most: addresses, lengths, a list of segments."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Both ends of a cluster should have the same ones."""

    log: Limits = DEFAULT_LIMITS
    """What a block, a key and a body may have."""
    frame_bytes: int = 4 * 1024 * 1024
    """Where a frame is cut. A single larger message travels alone."""
    queue_bytes_max: int = 96 * 1024 * 1024
    """How much waits for one peer; what does not fit is dropped, and its machine sends it again."""
    queue_messages_max: int = 20_000
    links_max: int = 10_000
    """To how many peers: their names come from the network."""
    link_idle_s: float = 60.0
    """How long a link that nobody asked to keep may be unused."""

    connect_timeout_s: float = 3.0
    backoff_s_min: float = 0.05
    backoff_s_max: float = 2.0
    """The wait between two attempts to connect doubles from the one to the other."""
    keepalive_s: float = 2.0
    """How long a connection may be silent before it is asked whether it is alive."""
    keepalive_timeout_s: float = 3.0

    connections_max: int = 10_000
    """How many a server takes; and never more than half of the files that the process may open."""
    streams_max: int = 100
    """How many calls one connection may have under way."""
    handshake_timeout_s: float = 5.0
    """How long a new connection may say nothing sensible."""
    connection_idle_s: float = 300.0
    """How long a connection may stand without a call. Links have one; who only answers pings has no place for good."""
    batches_max: int = 16
    """How many batches of one publishing stream are under way before the server stops reading it."""
    batches_bytes_max: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and value <= 0:
                raise UsageError(f"{each.name} = {value} must be above 0")
        if self.backoff_s_min > self.backoff_s_max:
            raise UsageError(
                f"backoff_s_min = {self.backoff_s_min} is above "
                f"backoff_s_max = {self.backoff_s_max}"
            )

    @property
    def message_bytes_max(self) -> int:
        """How long anything on the wire may be: one block of the greatest length, and what is around it."""
        return self.log.block_bytes_max + _ENVELOPE_BYTES_MAX

    def channel_options(self) -> Options:
        """The arguments of a channel."""
        return [
            *self._common(),
            # Nothing is sent twice unless we do it; and the environment does not choose the way.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            # Two channels to one address share neither their connection nor their waits.
            ("grpc.use_local_subchannel_pool", 1),
        ]

    def server_options(self) -> Options:
        """The arguments of a server."""
        return [
            *self._common(),
            # A port that is taken is an error, not a port that two servers share.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", min(self.connections_max, _files_max() // 2)),
            ("grpc.max_concurrent_streams", self.streams_max),
            ("grpc.server_handshake_timeout_ms", _ms(self.handshake_timeout_s)),
            ("grpc.max_connection_idle_ms", _ms(self.connection_idle_s)),
            ("grpc.http2.min_ping_interval_without_data_ms", _ms(self.keepalive_s) // 2),
            ("grpc.http2.max_ping_strikes", 0),
        ]

    def _common(self) -> Options:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.keepalive_time_ms", _ms(self.keepalive_s)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout_s)),
            # The one above does not count when this one, a minute by default, is longer.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout_s)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]


def _files_max() -> int:
    """Connections are files: whoever opens many must not keep the log from opening its own."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else 1 << 20


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
