"""The log's bulk work on Spark, for logs that one machine takes too long for.

>>> from spark_connector import jobs, session
>>> spark = session()
>>> jobs.compact(spark, "films", "smaller")
>>> jobs.diff(spark, "films", "backup").show()

All give what `waltool` gives on one machine, and stand on the same code: tasks read parts of a log with it, and what
they found is put together by key (`spark_connector.jobs.exchange`). The commands are those of `waltool`, with `--engine
spark`.
"""

from __future__ import annotations

from spark_connector.jobs.compacting import compact
from spark_connector.jobs.counting import churn, stats
from spark_connector.jobs.differing import diff
from spark_connector.jobs.exporting import export_parquet, export_state
from spark_connector.jobs.tables import import_frame, state

__all__ = [
    "churn",
    "compact",
    "diff",
    "export_parquet",
    "export_state",
    "import_frame",
    "state",
    "stats",
]
