"""`sirius serve`"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any, Final

import click

from sirius.cli.command import command as _command
from sirius.cli.options import http_address, names
from sirius.cli.output import Output
from sirius.config import SiriusConfig
from sirius.errors import UsageError

_LEVELS: Final = ("debug", "info", "warning", "error")


@_command(
    "sirius serve --data films",
    "sirius serve --config sirius.toml --http 0.0.0.0:8080",
    "sirius serve --data n1 --name 127.0.0.1:7401 \\",
    "    --members 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 --http 127.0.0.1:8081",
    "curl -X PUT --data-binary @film.json http://127.0.0.1:8080/storage/film/casablanca",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="All settings, in TOML."
)
@click.option("--data", metavar="DIR", type=click.Path(file_okay=False), help="The node's folder.")
@click.option("--name", metavar="HOST:PORT", help="Where other nodes reach this one.")
@click.option("--listen", metavar="HOST:PORT", help="Where it listens, if that is another.")
@click.option(
    "--members",
    metavar="NAME,…",
    type=names,
    help="The nodes that vote. Who is not among them follows.",
)
@click.option("--members-file", metavar="FILE", help="The same in a file, which may change.")
@click.option("--follow", metavar="NAME,…", type=names, help="Nodes to take updates from besides.")
@click.option("--durability", type=click.Choice(["fsync", "os", "memory"]), help="Default: fsync.")
@click.option(
    "--http",
    metavar="HOST:PORT",
    type=http_address,
    default="127.0.0.1:8080",
    help="Where clients reach the application; port 0: any. Default: 127.0.0.1:8080.",
)
@click.option("--until-eof", is_flag=True, help="Stop when standard input ends, too.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Default: info.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How lines are logged, to standard error; default: text.",
)
def command(
    out: Output,
    config: str | None,
    http: tuple[str, int],
    until_eof: bool,
    log_level: str,
    log_format: str,
    **settings: Any,
) -> None:
    """Run a node with the reference application: keys and values over HTTP.

    GET, PUT and DELETE /storage/KEY; /keys, /status, /digest; /metrics for Prometheus; /healthz and /readyz. Reads
    come from this node's memory. The settings are those of a configuration file, or a few of them as options. SIGTERM
    and Ctrl-C end it in order: requests are answered, the leadership goes to another node.
    """
    from sirius.app.service import Service

    given = {name: value for name, value in settings.items() if value is not None}
    found = _configuration(config, given)
    log_to_stderr(log_level, log_format)

    def listening(port: int) -> None:
        host = f"[{http[0]}]" if ":" in http[0] else http[0]
        _announce(out, found, f"http://{host}:{port}")

    asyncio.run(Service(found, http, until_eof=until_eof).run(listening))


def _configuration(config: str | None, given: dict[str, Any]) -> SiriusConfig:
    if config is None:
        if not given:
            raise UsageError("expected --config FILE, or --data DIR")
        return SiriusConfig(**given)
    if given:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise UsageError(f"--config and {option} are both given; the file says it all")
    return SiriusConfig.load(config)


def log_to_stderr(level: str, form: str = "text") -> None:
    """Have the library's log written where it is in nobody's way."""
    from sirius.ops.logs import JsonFormatter

    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _announce(out: Output, config: SiriusConfig, url: str) -> None:
    data = os.fspath(config.data)
    if out.as_json:
        out.object({"http": url, "name": config.name, "data": data, "pid": os.getpid()})
    else:
        name = f", as {config.name}" if config.name else ""
        out.line(f"serving {url}/storage/ from {data}{name}")
    out.flush()
