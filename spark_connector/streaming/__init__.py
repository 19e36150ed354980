"""The log as a stream. A position is a sequence number, and nothing else: so a stream goes on where it stopped after
restarts, over rotation and compaction, and from another node than before."""

from __future__ import annotations

from spark_connector.streaming.reader import stream_reader_of

__all__ = ["stream_reader_of"]
