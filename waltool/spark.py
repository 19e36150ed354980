"""`--engine spark`: the same command, its work done by `spark_connector.jobs`.

The only module here that knows of Spark, and it imports none of it until a command asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from sirius.errors import UsageError
from sirius.types import Seq
from sirius.wal.state import Difference, Side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waltool.filters import Filter
    from waltool.renewal import Survey
    from waltool.summary import Counted

_NEEDED: Final = ("pyspark", "pyarrow")
_SIDES: Final = {"a": Side.LEFT, "b": Side.RIGHT, "both": Side.BOTH}


@dataclass(frozen=True, slots=True)
class Spark:
    """Where to run: `master` is Spark's, all cores of this machine if it is None."""

    master: str | None = None

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        try:
            from spark_connector.jobs.running import running
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _NEEDED:
                raise
            raise UsageError(
                f"--engine spark needs {missing}, which is not installed: "
                "pip install 'sirius-log[spark]'"
            ) from None
        with running(self.master) as spark:
            yield spark

    @contextmanager
    def survey(self) -> Iterator[Survey]:
        """Give what finds out which records are live."""
        with self._session() as spark:
            from spark_connector.jobs.compacting import surveying

            yield surveying(spark)

    def count(self, log: str, separator: str, top: int, wanted: Filter) -> Counted:
        """Count what is in a log."""
        with self._session() as spark:
            from spark_connector.jobs.counting import counted

            return counted(spark, log, separator, top, wanted)

    def diff(self, left: str, right: str) -> Iterator[Difference]:
        """Yield the keys in which two logs differ, sorted."""
        with self._session() as spark:
            from spark_connector.jobs import diff

            for row in diff(spark, left, right).toLocalIterator():
                yield Difference(row.key, _SIDES[row.side], _seq(row.a_seq), _seq(row.b_seq))

    def export(self, log: str, target: str, wanted: Filter) -> int:
        """Write a folder of Parquet files; return how many records it has."""
        with self._session() as spark:
            from spark_connector.jobs import export_parquet

            return export_parquet(spark, log, target, wanted=wanted)


def _seq(number: int | None) -> Seq | None:
    return None if number is None else Seq(number)


master_option = click.option(
    "--master", metavar="URL", help="Spark's master; default: all cores of this machine."
)


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --engine and --master; it gets them as `spark`, which is None for this machine alone."""

    @click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        help="Who does the work: this process, or Spark, for a log that one machine takes too long for.",
    )
    @master_option
    @wraps(function)
    def run(*args: Any, engine: str, master: str | None, **parameters: Any) -> Any:
        if engine != "spark" and master is not None:
            raise UsageError("--master is Spark's: give --engine spark, too")
        spark = Spark(master) if engine == "spark" else None
        return function(*args, spark=spark, **parameters)

    return run
