"""`sirius broadcast tail`"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from sirius.cli.broadcast.joining import Joining, joining_options
from sirius.cli.command import command as _command
from sirius.cli.output import Output
from sirius.cli.text import escape
from sirius.errors import UsageError

if TYPE_CHECKING:
    from sirius.broadcast import Received, Subscription

_IDLE_MAX: Final = 1_000_000_000
"""For longer than that nobody can wait. A number that is none is not below it either."""


@_command(
    "sirius broadcast tail films --proxy 127.0.0.1:7500",
    "sirius broadcast tail 'films*' --from 1 --idle 2 --proxy 127.0.0.1:7500",
    "sirius broadcast tail films --json --proxy 127.0.0.1:7500 | jq .key",
)
@joining_options
@click.option("--from", "from_seq", type=int, metavar="SEQ", help="Begin there; 1: everything.")
@click.option("--topic", metavar="PATTERN", help="Only events of such topics: '/noir/*'.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after so many events.")
@click.option("--idle", type=click.FloatRange(0), metavar="SECONDS", help="End if nothing comes.")
@click.argument("stream")
def command(  # noqa: PLR0913 (options, by keyword)
    out: Output,
    joining: Joining,
    *,
    proxy: str | None,
    stream: str,
    from_seq: int | None,
    topic: str | None,
    limit: int | None,
    idle: float | None,
) -> None:
    """Show the events of a stream as they come.

    STREAM may be a pattern such as 'films*'. Without --from, only what is published from now on. Ends with Ctrl-C, or
    as --limit and --idle say.
    """
    if idle is not None and not idle <= _IDLE_MAX:
        raise UsageError(f"--idle is a number of seconds up to {_IDLE_MAX:,}")
    with (
        joining.connect(proxy) as broadcast,
        broadcast.subscribe(stream, from_seq, topic=topic) as subscription,
    ):
        _show_all(out, subscription, limit, idle)


def _show_all(out: Output, events: Subscription, limit: int | None, idle: float | None) -> None:
    shown = 0
    while limit is None or shown < limit:
        try:
            event = events.get(idle)
        except TimeoutError:
            return
        if event is None:
            return
        out.object(_object(event)) if out.as_json else out.line(_line(event))
        out.flush()
        shown += 1


def _object(event: Received) -> dict[str, Any]:
    return {
        "stream": event.stream,
        "seq": event.seq,
        "time_us": event.time,
        "kind": event.kind.name.lower(),
        "topic": event.topic,
        **_data("key", event.key),
        **_data("payload", event.payload),
        "attributes": dict(event.attributes),
    }


def _data(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _line(event: Received) -> str:
    at = datetime.fromtimestamp(event.time / 1e6, UTC).strftime("%H:%M:%S.%f")[:-3]
    words = [event.stream, str(event.seq), at, event.kind.name.lower()]
    words += [event.topic] if event.topic else []
    words += [data.decode(errors="backslashreplace") for data in (event.key, event.payload) if data]
    words += [f"{name}={value}" for name, value in event.attributes.items()]
    return "  ".join(map(escape, words))
