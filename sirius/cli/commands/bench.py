"""`sirius bench`"""

from __future__ import annotations

import tempfile
from typing import Any

import click

from sirius.cli.command import command as _command
from sirius.cli.load import Load, Measured, load_cluster, load_embedded, random_body
from sirius.cli.nodes import Connection, connection_options
from sirius.cli.output import Output
from sirius.cli.text import duration, size

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@_command(
    "sirius bench",
    "sirius bench --outstanding 1 --seconds 10 --data /mnt/disk/bench",
    "sirius bench --json 127.0.0.1:7401 127.0.0.1:7402 | jq .rate",
)
@connection_options
@click.option(
    "--outstanding",
    type=click.IntRange(1, 65536),
    default=1024,
    help="How many updates are under way at a time; default: 1024.",
)
@click.option(
    "--seconds", type=click.FloatRange(0.01, 86400), default=5.0, help="How long; default: 5."
)
@click.option("--body-bytes", type=click.IntRange(0, 16 << 20), default=100, help="Default: 100.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os", "memory"]),
    help="Of the embedded node; default: fsync.",
)
@click.option(
    "--data", metavar="DIR", type=click.Path(), help="Its folder; default: a temporary one."
)
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
def command(
    out: Output,
    connection: Connection,
    addresses: tuple[str, ...],
    durability: str | None,
    data: str | None,
    **how: Any,
) -> None:
    """Measure how many updates a second there can be.

    Without ADDRESS: one node inside this process, on a temporary folder, or on --data, which gets keys that begin with
    bench/. With addresses: the cluster of these nodes, over gRPC; the updates stay in its log, so choose one that you
    can spare. Latency is the time from a request to its answer; a request to a cluster is a batch.
    """
    if addresses and (durability or data):
        message = "--durability and --data are for a node without ADDRESS"
        raise click.UsageError(message, click.get_current_context())
    load = Load(how["outstanding"], how["seconds"], random_body(how["body_bytes"]))
    if addresses:
        _show(out, load_cluster(addresses, connection, load), " ".join(addresses), load)
    else:
        mode = durability or "fsync"
        _show(out, _embedded(data, mode, load), f"one node, {mode}", load)


def _embedded(data: str | None, durability: str, load: Load) -> Measured:
    if data is not None:
        return load_embedded(data, durability, load)
    with tempfile.TemporaryDirectory(prefix="sirius-bench-") as folder:
        return load_embedded(f"{folder}/data", durability, load)


def _show(out: Output, measured: Measured, where: str, load: Load) -> None:
    times = {name: measured.percentile(part) for name, part in _PERCENTILES.items()}
    if out.as_json:
        out.object(
            {
                "where": where,
                "outstanding": load.outstanding,
                "body_bytes": len(load.body),
                "updates": measured.updates,
                "seconds": round(measured.seconds, 6),
                "rate": round(measured.rate, 1),
                **{f"{name}_s": round(value, 9) for name, value in times.items()},
            }
        )
        return
    out.line(f"{where}: {load.outstanding:,} outstanding, bodies of {size(len(load.body))}")
    out.pairs(
        [
            ("updates", f"{measured.updates:,} in {duration(measured.seconds)}"),
            ("rate", out.paint(f"{measured.rate:,.0f} a second", "bold")),
            *((name, duration(value)) for name, value in times.items()),
        ]
    )
