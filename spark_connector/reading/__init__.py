"""Batch reads. `scan` is the core, which streams and jobs stand on as well; `reader` is what Spark calls.

=============  ===============================================================================
module         what it does
=============  ===============================================================================
pinned         a log at one moment, and what has to be read of it (driver)
partitioning   pieces shared out to tasks (driver)
views          the newest record of each key; states in the past (driver)
predicate      filters of Spark, answered by bounds and by rows (both)
pieces         what a task gets
scan           pieces in, Arrow batches out (task)
files, rows    blocks off the disk; blocks as columns (task)
report         what was really read
=============  ===============================================================================
"""

from __future__ import annotations

from spark_connector.reading.pinned import check_paths
from spark_connector.reading.reader import reader_of
from spark_connector.reading.report import ReadReport

__all__ = ["ReadReport", "check_paths", "reader_of"]
