"""What the reference application counts besides its node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sirius.ops.metrics import histogram_family
from sirius.ops.recorder import SECONDS, Histogram

_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class AppMetrics(Collector):
    """Requests, connections and keys. `answered` is called by the event loop alone."""

    def __init__(self, connections: Callable[[], int], keys: Callable[[], int]) -> None:
        self._connections = connections
        self._keys = keys
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds = Histogram(SECONDS)

    def answered(self, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        # A client may make up methods; it must not make up time series.
        self._answers[method if method in _METHODS else "other", status] += 1
        self._seconds.add(seconds)

    def register(self, registry: CollectorRegistry) -> None:
        """Be scraped with the node."""
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Part of the interface of Prometheus."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Part of the interface of Prometheus."""
        answers = CounterMetricFamily(
            "sirius_http_requests_total", "Requests answered", labels=["method", "code"]
        )
        for (method, status), count in sorted(self._answers.copy().items()):
            answers.add_metric([method, str(status)], count)
        yield answers
        yield histogram_family(
            "sirius_http_request_seconds", "From a request's end to its answer", self._seconds
        )
        yield GaugeMetricFamily(
            "sirius_http_connections", "Open connections", value=self._connections()
        )
        yield GaugeMetricFamily("sirius_storage_keys", "Keys in memory", value=self._keys())
