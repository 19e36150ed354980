"""`sirius broadcast proxy`"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click

from sirius.cli.broadcast.stopping import watch
from sirius.cli.command import command as _command
from sirius.cli.commands.serve import log_to_stderr
from sirius.cli.output import Output
from sirius.errors import UsageError

if TYPE_CHECKING:
    from sirius.config.broadcast import BroadcastConfig

_LEVELS = ("debug", "info", "warning", "error")


@_command(
    "sirius broadcast proxy --listen 127.0.0.1:7500 --stream films",
    "sirius broadcast proxy --listen 127.0.0.1:7500 --stream films --data films",
    "sirius broadcast proxy --config europe.toml",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="All settings, in TOML."
)
@click.option("--listen", metavar="HOST:PORT", help="Where it listens.")
@click.option("--stream", "streams", metavar="NAME", multiple=True, help="A stream that it owns.")
@click.option("--data", metavar="DIR", type=click.Path(file_okay=False), help="Keep streams there.")
@click.option("--until-eof", is_flag=True, help="Stop when standard input ends, too.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Default: info.")
def command(out: Output, until_eof: bool, log_level: str, **given: Any) -> None:
    """Run the proxy of a region.

    It owns streams, and gets those of other proxies from them. Without --data, or `data` in the file, streams are kept
    in memory: when the proxy starts again they begin anew, and every cache is told to drop everything. A file with
    [replica] runs a replica: several of them are one proxy, and all but one may be lost. SIGTERM and Ctrl-C end it.
    """
    config = _configuration(**given)
    log_to_stderr(log_level)
    asyncio.run(_run(out, config, until_eof))


def _configuration(
    config: str | None, listen: str | None, streams: tuple[str, ...], data: str | None
) -> BroadcastConfig:
    from sirius.config.broadcast import BroadcastConfig

    if config is not None:
        if listen or streams or data:
            raise UsageError("--config says it all: no --listen, --stream and --data next to it")
        return BroadcastConfig.load(config)
    if not listen or not streams:
        raise UsageError("expected --config FILE, or --listen HOST:PORT and --stream NAME")
    return BroadcastConfig(name=listen, streams=dict.fromkeys(streams, listen), data=data)


async def _run(out: Output, config: BroadcastConfig, until_eof: bool) -> None:
    from sirius.cli.broadcast.setup import server_of

    server, stop = server_of(config), watch(until_eof=until_eof)
    await server.start()
    try:
        _announce(out, config)
        await stop.wait()
    finally:
        await server.close()


def _announce(out: Output, config: BroadcastConfig) -> None:
    from sirius.config.broadcast import own_streams

    own = list(own_streams(config))
    data = None if config.data is None else os.fspath(config.data)
    if out.as_json:
        found = {"name": config.name, "owns": own, "streams": list(config.streams), "data": data}
        replica = {"replica_of": config.replica.proxy} if config.replica.proxy else {}
        out.object({**found, **replica, "pid": os.getpid()})
    else:
        owns = f"owns {', '.join(own)}" if own else "owns no stream"
        out.line(f"{_called(config)} {owns}, {f'kept in {data}' if data else 'kept in memory'}")
    out.flush()


def _called(config: BroadcastConfig) -> str:
    chain = config.replica.proxy
    return f"replica {config.name} of proxy {chain}, which" if chain else f"proxy {config.name}"
