"""A node's metrics, for Prometheus.

Nothing is counted here: `NodeMetrics` looks at the node's status when somebody asks, so that a node pays for a scrape
and not for an update. What has to be measured as it happens is in `sirius.ops.recorder`. docs/metrics.md says what each
metric means and when to worry; a test holds that it names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isinf
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sirius.ops.recorder import Histogram, Recorder
from sirius.ops.status import PeerStatus, State, Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
ROLES: Final = ("leader", "voter", "learner", "follower", "passive")


class Observed(Protocol):
    """What has a status: a `sirius.Sirius`. Called on the thread that scrapes."""

    def status(self) -> Status: ...


class _Number(NamedTuple):
    """A metric that is one number of the status."""

    name: str
    help: str
    value: Callable[[Status], float | None]
    """None: there is nothing to say at present."""
    is_counter: bool = False


_NUMBERS: Final = (
    _Number(
        "sirius_decided_seq", "The log of this node has everything up to here", lambda s: s.decided
    ),
    _Number("sirius_known_seq", "The highest entry that this node has heard of", lambda s: s.known),
    _Number("sirius_durable_seq", "The log on disk has everything up to here", lambda s: s.durable),
    _Number(
        "sirius_applied_seq", "The handler has seen everything up to here", lambda s: s.applied
    ),
    _Number("sirius_lag_entries", "How far the handler is behind what is known", lambda s: s.lag),
    _Number(
        "sirius_staleness_seconds",
        "How long ago this node knew that it had everything",
        lambda s: s.staleness_s,
    ),
    _Number("sirius_voters", "Nodes that vote", lambda s: len(s.voters)),
    _Number("sirius_learners", "Nodes that are about to vote", lambda s: len(s.learners)),
    _Number(
        "sirius_wished_members",
        "Nodes that should vote, by the configuration or the member file",
        lambda s: len(s.wished or ()),
    ),
    _Number("sirius_has_leader", "Whether this node knows a leader", lambda s: bool(s.leader)),
    _Number(
        "sirius_leader_age_seconds",
        "For how long this node has known the present leader",
        lambda s: s.leader_since_s,
    ),
    _Number(
        "sirius_elections_total",
        "Changes of leadership seen",
        lambda s: s.elections,
        is_counter=True,
    ),
    _Number("sirius_ballot_round", "The round of the ballot in force", lambda s: s.ballot[0]),
    _Number(
        "sirius_outstanding_requests", "Requests that wait for answers", lambda s: s.outstanding
    ),
    _Number(
        "sirius_backlog_bytes",
        "Decided, not yet applied, and kept in memory",
        lambda s: s.backlog_bytes,
    ),
    _Number(
        "sirius_consensus_bytes",
        "Held for values and requests that are not decided, or not in the log, yet",
        lambda s: s.consensus_bytes,
    ),
    _Number(
        "sirius_repeated_accepts_total",
        "Values sent again because a majority did not answer in time",
        lambda s: s.repeated_accepts,
        is_counter=True,
    ),
    _Number(
        "sirius_catch_up_window_entries",
        "How much this node asks a source for at once",
        lambda s: s.catch_up_window,
    ),
    _Number(
        "sirius_handler_busy_seconds",
        "For how long the handler has been at its present batch",
        lambda s: s.handler_busy_s,
    ),
    _Number(
        "sirius_handler_exceptions_total",
        "How often the handler has raised",
        lambda s: s.handler_exceptions,
        is_counter=True,
    ),
    _Number(
        "sirius_replayed_records", "Records that the replay has handed over", lambda s: s.replayed
    ),
    _Number("sirius_replay_end_seq", "Where the replay ends", lambda s: s.replay_total),
    _Number("sirius_replay_seconds", "The time that the replay took", lambda s: s.replay_s),
    _Number("sirius_boot_seconds", "The time from the start until ready", lambda s: s.boot_s),
    _Number("sirius_log_bytes", "The size of the segments of the log", lambda s: s.log_bytes),
    _Number("sirius_log_segments", "The segments of the log", lambda s: s.segments),
    _Number(
        "sirius_tombstone_floor_seq",
        "Deletes up to here may be gone from the log",
        lambda s: s.tombstone_floor,
    ),
    _Number(
        "sirius_compaction_passes_total",
        "Compaction passes that were finished",
        lambda s: s.compactions,
        is_counter=True,
    ),
    _Number(
        "sirius_compaction_began_timestamp_seconds",
        "When the last compaction pass began",
        lambda s: s.compaction_began_at,
    ),
    _Number(
        "sirius_compaction_last_seconds",
        "How long the last compaction pass took",
        lambda s: s.compaction_s,
    ),
    _Number(
        "sirius_compaction_problem",
        "Whether the last compaction pass failed",
        lambda s: s.compaction_problem is not None,
    ),
    _Number(
        "sirius_members_file_problem",
        "Whether the member file is bad, and the one before in force",
        lambda s: s.members_problem is not None,
    ),
    _Number(
        "sirius_problem", "Whether the status names a problem", lambda s: s.problem is not None
    ),
)


class _PeerNumber(NamedTuple):
    """A metric that every link to another node has."""

    name: str
    help: str
    value: Callable[[PeerStatus], float | None]
    """None: there is nothing to say at present."""
    is_counter: bool = True


_PEER_NUMBERS: Final = (
    _PeerNumber(
        "sirius_peer_connected", "Whether the link is up", lambda p: p.connected, is_counter=False
    ),
    _PeerNumber(
        "sirius_peer_connects_total", "How often the link was opened", lambda p: p.connects
    ),
    _PeerNumber("sirius_peer_sent_messages_total", "Messages sent", lambda p: p.sent_messages),
    _PeerNumber(
        "sirius_peer_waiting_messages",
        "Messages not sent yet",
        lambda p: p.waiting,
        is_counter=False,
    ),
    _PeerNumber("sirius_peer_sent_frames_total", "Frames sent", lambda p: p.sent_frames),
    _PeerNumber("sirius_peer_sent_bytes_total", "Bytes sent", lambda p: p.sent_bytes),
    _PeerNumber(
        "sirius_peer_dropped_total", "Messages that did not fit the link", lambda p: p.dropped
    ),
    _PeerNumber(
        "sirius_peer_failures_total",
        "How often the link could not be opened, or was lost",
        lambda p: p.failures,
    ),
    _PeerNumber(
        "sirius_peer_round_trip_seconds",
        "How long the peer took for its last answer to a heartbeat of this leader",
        lambda p: p.round_trip_s,
        is_counter=False,
    ),
)


class NodeMetrics:
    """The metrics of one node, in a registry of their own. Call `text` from any thread.

    An application with a registry may register `collector` there instead.
    """

    def __init__(self, node: Observed, recorder: Recorder | None = None) -> None:
        self.collector: Collector = _NodeCollector(node, recorder)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """Return all metrics in the text format, whose content type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)


class _NodeCollector(Collector):
    def __init__(self, node: Observed, recorder: Recorder | None) -> None:
        self._node = node
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        """Part of the interface of Prometheus: called at each scrape."""
        status = self._node.status()
        yield from _identity(status)
        for number in _NUMBERS:
            if (value := number.value(status)) is not None:
                yield _family(number, (), [((), float(value))])
        yield from _followers(status)
        yield from _peers(status.peers)
        if self._recorder is not None:
            yield from _measured(self._recorder)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not ask a node that is still starting."""
        return ()


def _family(
    number: _Number | _PeerNumber,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    kind = CounterMetricFamily if number.is_counter else GaugeMetricFamily
    family = kind(number.name, number.help, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _identity(status: Status) -> Iterator[Metric]:
    """Who the node is, and what it is doing: gauges of which one is 1."""
    names = ("name", "cluster", "node_id")
    info = GaugeMetricFamily("sirius_node_info", "Who this node is; always 1", labels=names)
    info.add_metric([getattr(status, name) for name in names], 1)
    yield info
    yield _one_of("sirius_state", "What this node is doing", "state", tuple(State), status.state)
    yield _one_of("sirius_role", "What this node is in its cluster", "role", ROLES, status.role)
    leader = GaugeMetricFamily(
        "sirius_leader_info", "Whom this node takes for the leader; 1", labels=["leader"]
    )
    if status.leader:
        leader.add_metric([status.leader], 1)
    yield leader
    source = GaugeMetricFamily(
        "sirius_source_info", "The node that this one follows; 1", labels=["source"]
    )
    if status.source:
        source.add_metric([status.source], 1)
    yield source


def _one_of(name: str, text: str, label: str, values: tuple[str, ...], present: str) -> Metric:
    family = GaugeMetricFamily(name, f"{text}: 1 for that, 0 for the others", labels=[label])
    for value in values:
        family.add_metric([str(value)], float(value == present))
    return family


def _followers(status: Status) -> Iterator[Metric]:
    position = GaugeMetricFamily(
        "sirius_follower_seq", "How far a node is that takes updates from here", labels=["follower"]
    )
    lag = GaugeMetricFamily(
        "sirius_follower_lag_entries", "How far it is behind this node", labels=["follower"]
    )
    for name, seq in sorted(status.followers.items()):
        position.add_metric([name], seq)
        lag.add_metric([name], max(0, status.decided - seq))
    yield position
    yield lag


def _peers(peers: tuple[PeerStatus, ...]) -> Iterator[Metric]:
    for number in _PEER_NUMBERS:
        values = ((peer.name, number.value(peer)) for peer in peers)
        yield _family(
            number,
            ("peer",),
            [((name,), float(value)) for name, value in values if value is not None],
        )


def _measured(recorder: Recorder) -> Iterator[Metric]:
    rows: tuple[tuple[str, str, Histogram], ...] = (
        ("sirius_batch_updates", "Updates proposed as one batch", recorder.batches),
        ("sirius_decide_seconds", "From proposal to decision, a batch", recorder.decisions),
        ("sirius_apply_seconds", "The handler's time for a batch", recorder.applications),
        ("sirius_sync_seconds", "The disk's time for a sync", recorder.syncs),
    )
    for name, text, histogram in rows:
        yield histogram_family(name, text, histogram)


def histogram_family(name: str, text: str, histogram: Histogram) -> Metric:
    """Return a histogram in the form of Prometheus."""
    counts = histogram.read()
    buckets = [("+Inf" if isinf(bound) else f"{bound:g}", count) for bound, count in counts.buckets]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets, counts.sum)
    return family
