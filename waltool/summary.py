"""What `waltool stats` says of a log, put together from what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from sirius.wal import Op
from waltool.output import op_name, time_fields
from waltool.tally import Histogram, KeySums, Prefix, Sums

PERIODS: Final = {"hour": "h", "day": "D", "month": "M"}
_ROWS_MAX: Final = 48


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted, by whom and wherever. `holes` are numbers between `first` and `last` without a record."""

    first: int
    last: int
    holes: int
    sums: Sums
    keys: KeySums
    prefixes: Sequence[Prefix]

    def summary(self, path: str, per: str) -> dict[str, Any]:
        """Return what --json prints; `per` is a period, or "auto" for whatever fits on a page."""
        sums, keys = self.sums, self.keys
        return {
            "path": path,
            "first": self.first,
            "last": self.last,
            "records": int(sums.records.sum()),
            "holes": self.holes,
            "bytes": int(sums.bytes.sum()),
            "operations": _operations(sums),
            "keys": {
                "distinct": keys.distinct,
                "live": keys.live,
                "deleted": keys.distinct - keys.live,
            },
            "superseded": {
                "records": keys.records - keys.distinct,
                "bytes": keys.bytes - keys.newest_bytes,
            },
            "key_bytes": sums.key_bytes.summary(),
            "body_bytes": sums.body_bytes.summary(),
            "prefixes": [asdict(row) for row in self.prefixes],
            "over_time": _over_time(sums.hours, per),
        }


def _operations(sums: Sums) -> dict[str, dict[str, int]]:
    known = {int(op) for op in Op}
    ops = sorted(known | set(np.flatnonzero(sums.records).tolist()))
    return {
        op_name(op): {"records": int(sums.records[op]), "bytes": int(sums.bytes[op])} for op in ops
    }


def _over_time(hours: Histogram, per: str) -> dict[str, Any]:
    """Count records by the hour, the day or the month, in UTC; periods without any are left out."""
    times = hours.values.astype("datetime64[h]")
    for period, unit in PERIODS.items():
        starts, places = np.unique(times.astype(f"datetime64[{unit}]"), return_inverse=True)
        if period == per or (per == "auto" and (len(starts) <= _ROWS_MAX or period == "month")):
            break
    counts = np.zeros(len(starts), np.int64)
    np.add.at(counts, places, hours.counts)
    begins = starts.astype("datetime64[us]").astype(np.int64).tolist()
    rows = zip(begins, counts.tolist(), strict=True)
    return {"per": period, "counts": [{**time_fields(t), "records": n} for t, n in rows]}
