"""A Spark session on this machine, set up so that it works at the first try.

>>> from spark_connector import session
>>> spark = session()
>>> spark.read.format("sirius").load("films/").show()

The data source works in sessions that somebody else made, too. This one saves looking things up: it finds a Java
(`spark_connector.java`), has Spark's Python workers use this very interpreter and start in a third of the time
(`spark_connector.home`), lets filters reach the log, and keeps Spark's ports on the loopback.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

from spark_connector.home import linked_home
from spark_connector.java import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_log = logging.getLogger("sirius.spark")

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Over TCP a query waits forty milliseconds and more for acknowledgements, whatever it reads.
    "spark.python.unix.domain.socket.enabled": "true",
    # Rows go to Python by ten thousand, whatever is in them: with bodies of a MiB that would be ten GiB at a time.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}


def session(
    master: str | None = None, *, app: str = "sirius", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session, the one that is running if there is one.

    `master` is Spark's (all cores of this machine if it is not given); `conf` overrules what stands in `SETTINGS`.
    """
    master = master or f"local[{os.cpu_count() or 1}]"
    prepare_environment(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**_defaults(master), **(conf or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _defaults(master: str) -> dict[str, str]:
    settings = dict(SETTINGS)
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        # As many as there are cores: Spark's 200 are for clusters, and cost seconds here.
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return settings


def prepare_environment(master: str) -> None:
    """Set what has to be set before the first session of a process: Java, Spark, the workers' Python, the address."""
    java = find_java()
    _log.info("Spark runs on %s: %s", java.origin, java.home)
    os.environ["JAVA_HOME"] = str(java.home)
    # Otherwise workers run `python3` of the PATH, which outside an activated environment lacks everything.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    is_ours = os.environ["PYSPARK_PYTHON"] == sys.executable
    if master.startswith("local") and is_ours and "SPARK_HOME" not in os.environ:
        _use_linked_home()


def _use_linked_home() -> None:
    try:
        home = linked_home()
    except OSError as error:
        _log.info("Spark's workers start more slowly than they could: %s", error)
        return
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
