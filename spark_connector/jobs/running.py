"""A session for a command, and its failures in one line each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sirius import errors
from sirius.errors import SiriusError, UsageError
from spark_connector.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark logs a failure several times over, with traces of Java; what it was about is told once, at the end.
_CONF: Final = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""What spark-submit sets for the programs that it starts."""
_OURS: Final = re.compile(r"^(?:sirius|spark_connector)\.(?:\w+\.)*(\w+): (.*)$", re.MULTILINE)
_JAVAS: Final = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: (.*)$", re.MULTILINE)
"""How an error of Java begins that nobody foresaw, behind a line that says nothing."""


class JobFailed(SiriusError):
    """A job on Spark failed; the message is that of the task."""


@contextmanager
def running(master: str | None = None) -> Iterator[SparkSession]:
    """Give a session to a command. It ends with the command, unless somebody had started it before."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    spark = found or _started(master)
    try:
        yield spark
    except (PySparkException, Py4JJavaError) as error:
        raise _told(error) from error
    finally:
        if found is None:
            spark.stop()


def _started(master: str | None) -> SparkSession:
    if master is None and _SUBMITTED in os.environ:
        from pyspark.sql import SparkSession

        # spark-submit was told where to run, and everything else.
        return SparkSession.builder.getOrCreate()
    return session(master, conf=_CONF)


def _told(error: Exception) -> SiriusError:
    """Return what went wrong as an error of ours, with the exit code that it has on one machine."""
    from pyspark.errors import AnalysisException

    message = str(error)
    found = _OURS.findall(message)
    kind = getattr(errors, found[-1][0], SiriusError) if found else None
    # What Spark finds wrong before it begins, such as a path that is not there, is what was asked for.
    is_usage = isinstance(error, AnalysisException) if kind is None else kind.exit_code == 2
    return (UsageError if is_usage else JobFailed)(plain(message))


def plain(message: str) -> str:
    """Return what a task said, out of the traces of Python and Java that Spark wraps it in."""
    if found := _OURS.findall(message):
        return str(found[-1][1])
    if found := _JAVAS.findall(message):
        return str(found[0])
    return message.strip().splitlines()[0]
