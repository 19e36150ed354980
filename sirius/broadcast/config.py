"""The settings of proxies and clients. Times are seconds of a monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from sirius.broadcast.limits import Limits
from sirius.errors import UsageError


def _check(config: object, least: dict[str, float]) -> None:
    for name in getattr(config, "__slots__", ()):
        value = getattr(config, name)
        if isinstance(value, int | float) and value < least.get(name, 1e-9):
            raise UsageError(f"{name} = {value} is too small")


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """What proxies and clients of a region have in common."""

    view_max: int = 20
    """V of the paper: how many others one knows."""
    fanout: int = 4
    """F of the paper: how many of them are notified. 4 was best in the paper's Figure 5b."""
    shuffle_s: float = 0.03
    """How often those are drawn anew."""
    gossip_s: float = 0.5
    """How often views are exchanged with a neighbour."""
    gossip_timeout_s: float = 0.4
    """When a neighbour that does not answer leaves the view."""
    suspect_s: float = 3.0
    """How long it is not taken back on hearsay."""
    proxy_share: float = 0.1
    """How often a client gossips with its proxy although it knows enough others."""
    notify_s: float = 0.2
    """How often one says how far one is although nothing is new."""
    reply_bytes_max: int = 1 << 20
    """How much is put into one answer. One batch always fits."""

    def __post_init__(self) -> None:
        _check(self, {"proxy_share": 0.0})


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """Everything has a bound, and every bound has its name here."""

    advertise_s: float = 0.2
    """How often a proxy tells the others how far it is."""
    switch_c: float = 100.0
    """C of the paper, in events times seconds: how far ahead another source has to be, the more the shorter ago the
    present one has shown progress."""
    patience_s: float = 1.0
    """How long a proxy that knows of more gets nothing before it takes any source that has more."""
    retry_s: float = 0.25
    """How long nothing comes although the source has more, before a proxy subscribes anew."""
    gap_s: float = 0.05
    """How often at most it subscribes anew because of a gap."""
    renew_s: float = 0.5
    """How often a subscription is confirmed, at least."""
    subscriber_timeout_s: float = 2.0
    """When a proxy that did not confirm its subscription is forgotten."""
    subscribers_max: int = 256
    """Subscriptions, of all proxies and streams."""
    window_bytes: int = 8 << 20
    """How much may be under way to a subscriber."""
    forward_bytes_max: int = 1 << 20
    """How much of a history is put into one message."""
    recent_bytes_max: int = 16 << 20
    """How much of each stream is kept as it came, to be passed on without a look at the history."""
    history_bytes_max: int = 1 << 30
    """When the owner of a stream refuses what does not make room."""
    limits: Limits = field(default_factory=Limits)
    region: RegionConfig = field(default_factory=RegionConfig)

    def __post_init__(self) -> None:
        _check(self, {"switch_c": 0.0})


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """What the replicas of a proxy agree on."""

    beat_s: float = 0.1
    """How often neighbours in a chain hear from each other, at least."""
    suspect_s: float = 1.0
    """How long a neighbour is silent before it is to leave the chain."""
    propose_s: float = 0.3
    """How often a change of the chain is proposed again."""
    retry_s: float = 0.1
    """How long nothing is confirmed before it is sent again."""

    def __post_init__(self) -> None:
        _check(self, {})
        if self.suspect_s < 2 * self.beat_s:
            raise UsageError(f"suspect_s = {self.suspect_s} is less than two beats")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Likewise, of a client."""

    request_timeout_s: float = 0.4
    """When a request that was not answered goes to the proxy, or is given up."""
    request_events_max: int = 1 << 16
    """How many events are asked for at once."""
    requests_max: int = 4
    """How many requests are under way for a stream."""
    stall_s: float = 0.5
    """How long one knows of more and asks nobody, before one asks the proxy."""
    recent_bytes_max: int = 4 << 20
    """How much of each stream is kept for others."""
    ahead_bytes_max: int = 4 << 20
    """How much of each stream waits for what comes before it."""
    backlog_bytes_max: int = 16 << 20
    """How much of each stream the application may not have taken before the client stops asking."""
    publish_retry_s: float = 0.5
    """When a batch that was not answered is sent again."""
    publish_waiting_max: int = 1024
    """How many batches wait to be published."""
    region: RegionConfig = field(default_factory=RegionConfig)

    def __post_init__(self) -> None:
        _check(self, {})
