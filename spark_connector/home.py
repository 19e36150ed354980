"""A home for Spark whose workers import the installed pyspark, compiled, instead of a zip of it.

Spark puts the zip of pyspark that its home has in front of everything else that its Python workers import. Python does
not keep what it compiles out of a zip, so every worker compiles all of it again: two thirds of what its start costs,
and queries over a data source in Python start several. In a session on this machine workers run the interpreter of the
caller, which has the same pyspark. So Spark gets a home of links to all that the installed one has, but for the zip.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from spark_connector.java import cache

_PYTHON = "python"
"""The folder that has the zip, and nothing else that a session needs."""


def linked_home() -> Path | None:
    """Return such a home for the pyspark of this interpreter; None if that is no installed one."""
    installed = _installed()
    if installed is None:
        return None
    links = {path.name: str(path) for path in sorted(installed.iterdir()) if path.name != _PYTHON}
    digest = hashlib.sha256(repr(links).encode()).hexdigest()[:16]
    home = cache() / f"spark-{digest}"
    if not home.exists():
        _build(home, links)
    return home


def _installed() -> Path | None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    return home if (home / "bin" / "spark-submit").is_file() else None


def _build(home: Path, links: dict[str, str]) -> None:
    """Put it in place whole, however many processes do so at once."""
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for name, target in links.items():
            (draft / name).symlink_to(target)
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft)
        if not home.exists():
            raise
