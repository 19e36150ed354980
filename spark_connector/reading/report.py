"""What a query really read, and what it had to leave out.

A Python data source can tell Spark nothing but rows. With the option `report`, a folder that all machines see, the
driver notes there what it planned, and each task what it did: a small JSON file each. `ReadReport.load` puts them
together once the query is done.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from spark_connector.reading.scan import LeftOut, Reading

_PLAN: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Sums over all tasks of one query. Of a task that ran again the last run counts."""

    partitions: int = 0
    segments: tuple[int, ...] = ()
    nbytes: int = 0
    rows: int = 0
    left_out: tuple[LeftOut, ...] = field(default=())

    @classmethod
    def load(cls, folder: str | Path) -> ReadReport:
        """Read what driver and tasks left in a folder."""
        notes = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
        return cls(
            partitions=sum(note["partition"] is not None for note in notes),
            segments=tuple(sorted({segment for note in notes for segment in note["segments"]})),
            nbytes=sum(note["nbytes"] for note in notes if note["partition"] is not None),
            rows=sum(note["rows"] for note in notes),
            left_out=tuple({LeftOut(**each): None for note in notes for each in note["left_out"]}),
        )


def begin(folder: str, reading: Reading) -> None:
    """Note what the driver found out, and forget an earlier query."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in Path(folder).glob("*.json"):
        path.unlink(missing_ok=True)
    _write(folder, _PLAN, None, reading)


def note(folder: str, partition: int, reading: Reading) -> None:
    """Note what a task read."""
    _write(folder, f"part-{partition:05d}.json", partition, reading)


def _write(folder: str, name: str, partition: int | None, reading: Reading) -> None:
    fields: dict[str, Any] = {
        "partition": partition,
        "segments": sorted(reading.segments) if partition is not None else [],
        "nbytes": reading.nbytes,
        "rows": reading.rows,
        "left_out": [asdict(each) for each in reading.left_out],
    }
    path = f"{folder}/{name}"
    # A task may run twice at once.
    building = f"{path}.{os.getpid()}"
    Path(building).write_text(json.dumps(fields))
    os.replace(building, path)
