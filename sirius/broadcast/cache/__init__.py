"""`NearCache`, and the streams of invalidations that keep it true.

=============  ==============================================================================
`near`         the cache itself: `entries`, `flights` (loads), `loading`, `shelf`, `freshness`
`source`       the seam: `InvalidationSource`, `InvalidationSink`, `feed`
`stream`       invalidations inside a process
`log`          the log of a node in this process
`tail`         the log of a remote node; not loaded here, since it brings gRPC
`sinks`        other caches: mappings such as those of `cachetools`, Redis; `relay` for slow ones
=============  ==============================================================================
"""

from sirius.broadcast.cache.errors import NotCached
from sirius.broadcast.cache.log import LogStream
from sirius.broadcast.cache.near import NearCache
from sirius.broadcast.cache.relay import Relay
from sirius.broadcast.cache.settings import OnStale, Statistics
from sirius.broadcast.cache.sinks import MappingSink, RedisSink
from sirius.broadcast.cache.source import (
    Feed,
    InvalidationSink,
    InvalidationSource,
    Translated,
    feed,
)
from sirius.broadcast.cache.stream import MemoryStream

__all__ = [
    "Feed",
    "InvalidationSink",
    "InvalidationSource",
    "LogStream",
    "MappingSink",
    "MemoryStream",
    "NearCache",
    "NotCached",
    "OnStale",
    "RedisSink",
    "Relay",
    "Statistics",
    "Translated",
    "feed",
]
