"""`sirius broadcast publish`"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from io import BufferedReader
from typing import TYPE_CHECKING, Final, cast

import click

from sirius.cli.broadcast.joining import Joining, joining_options
from sirius.cli.command import command as _command
from sirius.cli.output import Output
from sirius.cli.text import escape
from sirius.errors import OutcomeUnknown, UsageError

if TYPE_CHECKING:
    from sirius.broadcast import Broadcast, Span

_BATCH: Final = 10_000
_CHUNK_BYTES: Final = 1 << 18


@_command(
    "sirius broadcast publish films title/casablanca --proxy 127.0.0.1:7500",
    "cat keys.txt | sirius broadcast publish films --proxy 127.0.0.1:7500",
    "sirius broadcast publish films --collect 'topic = \"/old/*\"' --proxy 127.0.0.1:7500",
)
@joining_options
@click.option("--payload", default="", metavar="TEXT", help="What to say about each key.")
@click.option("--topic", default="", metavar="/TOPIC", help="The topic of each event.")
@click.option("--keep", is_flag=True, help="Events that do not replace earlier ones of their key.")
@click.option("--collect", metavar="PREDICATE", help="A GC event: what matches is needless.")
@click.argument("stream")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
def command(
    out: Output,
    joining: Joining,
    proxy: str | None,
    stream: str,
    keys: tuple[str, ...],
    collect: str | None,
    **options: str | bool,
) -> None:
    """Publish events, by their keys.

    Without KEY, keys are read from standard input, one a line, and published as they come. Ends when all events are in
    the stream, and says where. A GC event makes all earlier ones needless that match a predicate, such as 'seq < 1000',
    'key prefix "title/"', or 'topic = "/old/*" and stars < 3'.
    """
    if collect is not None and (keys or any(options.values())):
        raise UsageError("--collect stands alone: no keys, --payload, --topic and --keep with it")
    with joining.connect(proxy) as broadcast:
        if collect is not None:
            seq = _await(broadcast.collect(stream, collect).batch, joining.timeout_s).first
            _tell(out, stream, seq, seq)
        else:
            found = map(_lined, _chunks()) if not keys else [list(map(os.fsencode, keys))]
            _publish(out, broadcast, joining.timeout_s, stream, _batches(found), **options)


def _publish(  # noqa: PLR0913 (options, by keyword)
    out: Output,
    broadcast: Broadcast,
    timeout_s: float,
    stream: str,
    batches: Iterable[list[bytes]],
    *,
    payload: str | bool,
    topic: str | bool,
    keep: str | bool,
) -> None:
    for batch in batches:
        payloads = [os.fsencode(str(payload))] * len(batch) if payload else ()
        future = broadcast.publish_many(
            stream, batch, payloads, topic=str(topic), keyed=not keep, timeout=timeout_s
        )
        _tell(out, stream, *_await(future, timeout_s))
        out.flush()


def _await(future: Future[Span], timeout_s: float) -> Span:
    try:
        return future.result(timeout_s)
    except TimeoutError:
        raise OutcomeUnknown(
            f"the stream's owner did not answer in {timeout_s:g} s: the events may come there yet"
        ) from None


def _tell(out: Output, stream: str, first: int, last: int) -> None:
    if out.as_json:
        out.object({"stream": stream, "first": first, "last": last})
    else:
        where = f"{first}" if first == last else f"{first} to {last}"
        out.line(f"{escape(stream)}: published as {where}")


def _chunks() -> Iterator[bytes]:
    """Yield whole lines of standard input, as they come: a key need not wait for those that follow it."""
    rest, stdin = b"", cast(BufferedReader, sys.stdin.buffer)
    while chunk := stdin.read1(_CHUNK_BYTES):
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        yield lines + newline
    yield rest


def _lined(chunk: bytes) -> list[bytes]:
    return [key for line in chunk.split(b"\n") if (key := line.removesuffix(b"\r"))]


def _batches(found: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Cut keys into batches. A key is bytes, whether or not these are text."""
    for keys in found:
        for at in range(0, len(keys), _BATCH):
            yield keys[at : at + _BATCH]
