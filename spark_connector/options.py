"""The options of `format("sirius")`: what there is, what each means, and good words for bad ones.

Spark hands options over as a dictionary of texts with lower-case names. `Options.of` turns it into this class once;
nothing else of the connector reads the dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from sirius.errors import UsageError

VIEWS: Final = ("updates", "state", "changes")
ON_CORRUPT: Final = ("fail", "skip")
OPERATIONS: Final = ("put", "delete")
_IGNORED: Final = frozenset({"checkpointlocation"})
"""What Spark itself adds."""

Reader = Callable[[str, str], Any]
"""Makes a value of an option's text, given its name for the message if it cannot."""


class Use(StrEnum):
    """What is done with options. Each counts for some uses; to the others it would say nothing."""

    READ = "spark.read"
    STREAM = "spark.readStream"
    WRITE = "writing a log"
    PUBLISH = "publishing to a cluster"


_READING: Final = (Use.READ, Use.STREAM)
_CLUSTER: Final = (Use.STREAM, Use.PUBLISH)


def _option(name: str, read: Reader, default: Any, *uses: Use) -> Any:
    return field(default=default, metadata={"option": name, "read": read, "uses": uses})


def _text(_name: str, text: str) -> str:
    return text


def _one_of(choices: tuple[str, ...]) -> Reader:
    def read(name: str, text: str) -> str:
        if text.lower() not in choices:
            raise UsageError(f"{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {text!r}")
        return text.lower()

    return read


def _number(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{name} is a number from 1 on, not {text!r}")
    return int(text)


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def _list(name: str, text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise UsageError(f"{name} is a list such as a,b and not {text!r}")
    return found


def _moment(name: str, text: str) -> int | datetime:
    if text.strip().isdecimal():
        return _number(name, text)
    return _time(name, text, "a sequence number or a time")


def _time(name: str, text: str, kind: str = "a time") -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{name} is {kind} such as 2026-11-16T12:00:00Z, not {text!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a read, a write or a stream was asked for."""

    paths: tuple[str, ...] = ()
    """Where the log is: `load("films")`, or `load(["north", "south"])` for several."""
    view: str = _option("view", _one_of(VIEWS), "updates", *_READING)
    """`updates`: every PUT and DELETE. `state`: the newest value of every key. `changes`: the newest update of every
    key within `fromSeq` and `toSeq`, deletes included."""
    as_of: int | datetime | None = _option("asOf", _moment, None, Use.READ)
    """For `state`: a sequence number, or a time as in `2026-11-16T12:00:00Z`."""
    from_seq: int | None = _option("fromSeq", _number, None, *_READING)
    """The first sequence number to read. For a stream: where it begins."""
    to_seq: int | None = _option("toSeq", _number, None, *_READING)
    """The last sequence number to read."""
    key: str | None = _option("key", _text, None, *_READING)
    """Only this key."""
    key_prefix: str | None = _option("keyPrefix", _text, None, *_READING)
    """Only keys that begin with this."""
    key_from: str | None = _option("keyFrom", _text, None, *_READING)
    """Only this key and those behind it, in the order of their bytes."""
    key_until: str | None = _option("keyUntil", _text, None, *_READING)
    """Only keys in front of this one."""
    since: datetime | None = _option("since", _time, None, *_READING)
    """Only updates of this time or a later one."""
    until: datetime | None = _option("until", _time, None, *_READING)
    """Only updates of an earlier time than this."""
    op: str | None = _option("op", _one_of(OPERATIONS), None, *_READING)
    """Only `put` or only `delete`."""
    push_filters: bool = _option("pushFilters", _yes_or_no, False, Use.READ)
    """Whether filters of queries reach the log. Then use the DataFrame once: Spark 4.3 keeps the filter for later."""
    columns: tuple[str, ...] = _option("columns", _list, (), *_READING)
    """Columns to read, as in `seq,key`. Others are neither built nor sent; `select` alone does not spare that."""
    verify: bool = _option("verify", _yes_or_no, True, *_READING)
    """Whether every block's checksum is verified."""
    on_corrupt: str = _option("onCorrupt", _one_of(ON_CORRUPT), "fail", *_READING)
    """`fail`, or `skip`: leave damaged ranges out, and report them in the log of the task."""
    report: str | None = _option("report", _text, None, Use.READ)
    """A folder in which tasks note what they read and left out; see `spark_connector.reading.report`."""
    endpoint: tuple[str, ...] = _option("endpoint", _list, (), *_CLUSTER)
    """Addresses of nodes, as in `films1:7400,films2:7400`: read their log, or publish to their cluster."""
    tls_ca: str | None = _option("tlsCa", _text, None, *_CLUSTER)
    """A file with the certificates that nodes are trusted by. With it the connection is encrypted."""
    tls_cert: str | None = _option("tlsCert", _text, None, *_CLUSTER)
    """A file with the client's certificate."""
    tls_key: str | None = _option("tlsKey", _text, None, *_CLUSTER)
    """A file with the client's private key."""
    allow_plaintext: bool = _option("allowPlaintext", _yes_or_no, False, *_CLUSTER)
    """Whether to talk in the clear to other machines: who can reach that network can read and change everything."""
    max_records_per_trigger: int | None = _option("maxRecordsPerTrigger", _number, None, Use.STREAM)
    """How many records one micro-batch of a stream has at most."""
    batch_records: int | None = _option("batchRecords", _number, None, *_READING)
    """How many records an Arrow batch has at most: 32768 unless set, 131072 where neither keys nor bodies are read."""
    segment_bytes: int = _option("segmentBytes", _number, 64 * 1024 * 1024, Use.WRITE)
    """How large a segment of a new log gets."""
    txn_id: str | None = _option("txnId", _text, None, Use.PUBLISH)
    """What a publishing job or stream is known by: run again under the same name, nothing takes effect twice."""

    @classmethod
    def of(cls, given: Mapping[str, str], use: Use | None = None) -> Options:
        """Read Spark's options; raise `UsageError` for what is unknown, or makes no sense, or none for this use."""
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name == "path":
                values["paths"] = (text,)
            elif name == "paths":
                # What Spark makes of a list of paths.
                values["paths"] = tuple(json.loads(text))
            elif name not in _IGNORED:
                known = _known(name)
                _refuse_misuse(known, use)
                values[known.name] = known.metadata["read"](known.metadata["option"], text)
        options = cls(**values)
        options.check()
        return options

    def check(self) -> None:
        """Refuse what cannot be meant together."""
        if self.as_of is not None and self.view != "state":
            raise UsageError("asOf says which state to read: it needs view=state")
        if self.as_of is not None and (self.from_seq is not None or self.to_seq is not None):
            raise UsageError("asOf and fromSeq or toSeq cannot be given together")
        if self.view == "state" and (self.from_seq or 1) > 1:
            raise UsageError("a state has no beginning: use view=changes with fromSeq")
        if self.from_seq is not None and self.to_seq is not None and self.from_seq > self.to_seq:
            raise UsageError(f"fromSeq {self.from_seq} lies behind toSeq {self.to_seq}")
        if len({bool(self.tls_ca), bool(self.tls_cert), bool(self.tls_key)}) > 1:
            raise UsageError(
                "tlsCa, tlsCert and tlsKey belong together: both ends show who they are"
            )

    @property
    def path(self) -> str:
        """The one path of an operation that takes no more."""
        if len(self.paths) != 1:
            given = f"{len(self.paths)} paths were given" if self.paths else "no path was given"
            raise UsageError(f"one path is needed, as in load(path) or save(path); {given}")
        return self.paths[0]


def _refuse_misuse(known: Field[Any], use: Use | None) -> None:
    """An option that nobody looks at would be a wish that was not heard."""
    uses = known.metadata["uses"]
    if use is not None and use not in uses:
        raise UsageError(
            f"{known.metadata['option']} is an option of {' and '.join(uses)}; it means nothing to {use}"
        )


def _known(name: str) -> Field[Any]:
    by_name = {each.metadata["option"].lower(): each for each in fields(Options) if each.metadata}
    if found := by_name.get(name):
        return found
    names = [each.metadata["option"] for each in by_name.values()]
    if close := get_close_matches(name, by_name, n=1):
        raise UsageError(
            f"there is no option {name!r}; did you mean {by_name[close[0]].metadata['option']}?"
        )
    raise UsageError(f"there is no option {name!r}; there are path, {', '.join(names)}")
