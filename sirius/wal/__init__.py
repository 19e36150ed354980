"""The log on disk, usable on its own: no network, no Spark.

>>> from sirius.wal import Log
>>> with Log.open("films") as log:
...     seq = log.put("title/casablanca", b'{"year": 1942}')
...     log.flush()
...     list(log.records())
"""

from sirius.wal.batch import Batch
from sirius.wal.block import Block, encode
from sirius.wal.compaction.plan import CompactionPolicy, CompactionResult
from sirius.wal.config import Durability, LogConfig
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.log import Log
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.reader import LogReader
from sirius.wal.record import Limits, Op, Record, Update
from sirius.wal.repair.repair import RepairReport, repair
from sirius.wal.snapshot import Snapshot
from sirius.wal.state import Difference, StateDigest, diff, state_digest

__all__ = [
    "Batch",
    "Block",
    "CompactionPolicy",
    "CompactionResult",
    "Difference",
    "Durability",
    "FileSystem",
    "Limits",
    "Log",
    "LogConfig",
    "LogReader",
    "Manifest",
    "Op",
    "OsFileSystem",
    "Record",
    "RepairReport",
    "SegmentInfo",
    "Snapshot",
    "State",
    "StateDigest",
    "Update",
    "diff",
    "encode",
    "repair",
    "state_digest",
]
