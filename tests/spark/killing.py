"""Spark jobs as processes of their own, to be killed; and environments that lack things. Not a test itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300.0

BEGIN = """
import sys
from pyspark.sql import functions as F
from spark_connector import session
spark = session("local[2]", conf={"spark.local.dir": sys.argv[1], "spark.log.level": "OFF"})
"""
"""How a job begins: its first argument is a folder for Spark's own files."""


class Job:
    """A process with a Spark session in it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def until(self, happened: Callable[[], object]) -> None:
        """Wait until something has happened that the job does."""
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            assert self._process.poll() is None, "it was over before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9: the job, its JVM and the workers of that."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        """Wait until it is done."""
        assert self._process.wait(DEADLINE_S) == 0


@contextmanager
def running_job(script: str, scratch: Path, *arguments: object) -> Iterator[Job]:
    """Start a job; whatever becomes of it, nothing of it is left at the end."""
    command = [sys.executable, "-c", BEGIN + script, str(scratch), *map(str, arguments)]
    process = subprocess.Popen(command, start_new_session=True, cwd=ROOT)
    job = Job(process)
    try:
        yield job
    finally:
        if process.poll() is None:
            job.kill()


def run_job(script: str, scratch: Path, *arguments: object) -> None:
    """Run a job to its end."""
    with running_job(script, scratch, *arguments) as job:
        job.finish()


def without_java(folder: Path) -> dict[str, str]:
    """Return an environment of a machine that has no Java, and a cache of its own for what replaces it."""
    tools = folder / "bin"
    tools.mkdir()
    for place in ("/usr/bin", "/bin"):
        for tool in Path(place).iterdir():
            name = tools / tool.name
            if not tool.name.startswith("java") and not os.path.lexists(name):
                name.symlink_to(tool)
    kept = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(folder / "cache")}
