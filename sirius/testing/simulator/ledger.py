"""A ledger of seeds that were run, so that hours of them can be run in pieces.

One file for each version of the code, one line for each seed, as JSON. What is in it is not run again: whoever stops a
long run, by will or because a machine went away, goes on where it stopped. A seed means something else as soon as one
line of what runs it has changed, so the file's name is a digest of all modules that a run has loaded.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sirius.testing.simulator.faults import Kind
from sirius.testing.simulator.simulation import Result


def code_version() -> str:
    """Return a digest of the source of everything of ours that is loaded, and of the Python that runs it.

    A module that was compiled stands beside its source, and counts as that.
    """
    digest = hashlib.sha256(sys.version.encode())
    for name, module in sorted(sys.modules.items()):
        loaded = getattr(module, "__file__", None)
        if name.partition(".")[0] == "sirius" and loaded:
            source = Path(loaded).with_name(f"{Path(loaded).name.partition('.')[0]}.py")
            digest.update(name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


class Ledger:
    """The results of one version of the code, in a folder of such ledgers."""

    def __init__(self, folder: Path, version: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{version or code_version()}.jsonl"
        self.results = dict(self._read())

    def _read(self) -> Iterator[tuple[int, Result]]:
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            # It was being written when the process was killed.
            self.path.write_bytes(b"".join(lines[:-1]))
            lines.pop()
        for line in lines:
            result = from_json(json.loads(line))
            yield result.seed, result

    def left(self, seeds: Iterable[int]) -> list[int]:
        """Return the seeds that have not been run."""
        return [seed for seed in seeds if seed not in self.results]

    def kept(self, results: Iterable[Result]) -> Iterator[Result]:
        """Yield results, each once it is written down."""
        with self.path.open("ab") as file:
            for result in results:
                file.write(json.dumps(to_json(result)).encode() + b"\n")
                file.flush()
                yield result


def to_json(result: Result) -> dict[str, Any]:
    """Return everything but the trace: the seed repeats that."""
    fields = asdict(result)
    del fields["trace"]
    return {**fields, "faults": {str(kind): count for kind, count in result.faults.items()}}


def from_json(fields: dict[str, Any]) -> Result:
    faults = Counter({Kind(kind): count for kind, count in fields["faults"].items()})
    return Result(**{**fields, "faults": faults})
