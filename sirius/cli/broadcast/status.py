"""`sirius broadcast status`"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import click

from sirius.cli.broadcast.joining import Joining
from sirius.cli.command import command as _command
from sirius.cli.nodes import Asked, Json, connection_options
from sirius.cli.output import Output
from sirius.cli.text import duration, escape, plural, size
from sirius.errors import SiriusError, UsageError

_HEADS: Final = ("proxy", "stream", "events", "behind", "as of", "from", "kept")
_LEFT: Final = "proxy stream from"
_AT_ONCE: Final = 16


@_command(
    "sirius broadcast status 127.0.0.1:7500",
    "sirius broadcast status --config europe.toml",
    "sirius broadcast status --json 127.0.0.1:7500 | jq .streams.films.count",
)
@partial(connection_options, kind=Joining)
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
def command(out: Output, connection: Joining, addresses: tuple[str, ...]) -> int:
    """Show what proxies are doing.

    For each stream: the number of its last event there, how many events the proxy is behind the stream's owner, how
    long ago it last heard from it, and from whom it gets the stream. Of a replica also its place in the chain, and the
    number of the chain's configuration. Without ADDRESS, the proxies of the configuration are asked. Exits with 1 if
    one of them cannot be reached.
    """
    found = _ask_all(connection, connection.addresses(addresses))
    if out.as_json:
        for asked in found:
            out.object({"address": asked.address, **(asked.status or {"error": asked.error})})
    else:
        _show(out, found)
    return 0 if all(asked.status is not None for asked in found) else 1


def _ask_all(connection: Joining, addresses: tuple[str, ...]) -> list[Asked]:
    from sirius.broadcast.net.asking import status_of

    security = connection.security()

    def ask(address: str) -> Asked:
        try:
            status = status_of(address, security, connection.timeout_s)
        except UsageError:
            raise
        except SiriusError as error:
            return Asked(address, None, str(error))
        if "streams" not in status:
            return Asked(address, None, f"{address} is a client, no proxy")
        return Asked(address, status, None)

    with ThreadPoolExecutor(min(_AT_ONCE, len(addresses)), "sirius-ask") as pool:
        return list(pool.map(ask, addresses))


def _show(out: Output, found: list[Asked]) -> None:
    rows = [row for asked in found if asked.status for row in _rows(asked.status)]
    if rows:
        out.table(_HEADS, rows, _LEFT)
    for asked in found:
        if asked.status is None:
            out.line(out.paint(escape(str(asked.error)), "red"))
            continue
        if "replica" in asked.status:
            out.line(escape(_place(asked.status)))
        if trouble := list(_troubles(asked.status)):
            out.line(out.paint(f"{escape(asked.address)}: {', '.join(trouble)}", "yellow"))


def _rows(status: Json) -> Iterator[tuple[str, ...]]:
    for stream, each in status["streams"].items():
        is_own = each["owner"] == status["name"]
        yield (
            escape(status.get("replica") or status["name"]),
            escape(stream),
            str(each["count"]),
            "" if is_own else str(max(0, each["known"] - each["count"])),
            "" if is_own else duration(each["age_s"]),
            _source(each, is_own),
            size(each["bytes"]),
        )


def _source(stream: Json, is_own: bool) -> str:
    if stream.get("log"):
        return f"the log of {escape(', '.join(stream['log']))}"
    return "its owner" if is_own else escape(stream["source"] or "nobody yet")


def _place(status: Json) -> str:
    """Say where a replica stands."""
    me, chain, number = status["replica"], status["name"], status["configuration"]
    if not number:
        return f"{me}: a replica of {chain}, which knows of no configuration yet"
    replicas = status["replicas"]
    if status["is_member"]:
        at = replicas.index(me)
        ends = [end for end, place in (("head", 0), ("tail", len(replicas) - 1)) if at == place]
        part = f"{' and '.join(ends)}, " if ends else ""
        return f"{me}: {part}replica {at + 1} of {len(replicas)} of {chain}, configuration {number}"
    doing = "joins" if status["joining"] == me else "is not in"
    return f"{me}: {doing} {chain}, configuration {number}: {', '.join(replicas)}"


def _troubles(status: Json) -> Iterator[str]:
    for what, noun, said in (
        ("bad_messages", "message", " that made no sense"),
        ("refused_messages", "message", " that only a proxy may send"),
        ("failures", "failure", ""),
    ):
        if count := status.get(what):
            yield plural(count, noun) + said
    for stream, each in status["streams"].items():
        if failure := each.get("failure"):
            yield escape(f"stream {stream}: {failure}")
