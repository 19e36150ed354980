"""`sirius status`"""

from __future__ import annotations

from typing import Final

import click

from sirius.cli.command import command as _command
from sirius.cli.nodes import Asked, Connection, Json, connection_options, statuses
from sirius.cli.output import Output
from sirius.cli.text import duration, escape, plural, size

_STYLES: Final = {"ready": "green", "replaying": "yellow", "catching_up": "yellow"}
_HEADS: Final = ("node", "state", "role", "leader", "applied", "lag", "staleness")
_LEFT: Final = "node state role leader"


@_command(
    "sirius status 127.0.0.1:7401",
    "sirius status 127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403",
    "sirius status --config sirius.toml",
    "sirius status --json http://127.0.0.1:8080 | jq .applied",
)
@connection_options
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
def command(out: Output, connection: Connection, addresses: tuple[str, ...]) -> int:
    """Show what nodes are doing.

    ADDRESS is a node's name, "host:port", or the "http://host:port" of a `sirius serve`. Without one, the members of
    the configuration are asked. Exits with 1 if one of them cannot be reached, is not ready or has a problem.
    """
    found = statuses(connection.named(addresses), connection)
    if out.as_json:
        for asked in found:
            out.object({"address": asked.address, **(asked.status or {"error": asked.error})})
    elif len(found) == 1 and found[0].status is not None:
        _show_one(out, found[0].status)
    else:
        _show_all(out, found)
    return 0 if all(map(_is_well, found)) else 1


def _is_well(asked: Asked) -> bool:
    status = asked.status
    return status is not None and status.get("state") == "ready" and not status.get("problem")


def _show_all(out: Output, found: list[Asked]) -> None:
    answered = [asked for asked in found if asked.status is not None]
    if answered:
        out.table(_HEADS, [_row(asked.status or {}) for asked in answered], _LEFT)
    for asked in found:
        if problem := asked.error or (asked.status or {}).get("problem"):
            # What nobody answers names its address by itself.
            who = "" if asked.error else f"{asked.address}: "
            out.line(out.paint(escape(f"{who}{problem}"), "red"))


def _row(status: Json) -> tuple[str, ...]:
    return (
        escape(str(status.get("name"))),
        str(status.get("state")),
        str(status.get("role")),
        escape(status.get("leader") or "none"),
        f"{status.get('applied', 0):,}",
        f"{status.get('lag', 0):,}",
        duration(status.get("staleness_s")),
    )


def _show_one(out: Output, status: Json) -> None:
    state = str(status.get("state"))
    out.line(out.paint(escape(str(status.get("name"))), "bold"))
    rows = [("state", out.paint(state, _STYLES.get(state, "red")))]
    if problem := status.get("problem"):
        rows.append(("problem", out.paint(escape(str(problem)), "red")))
    out.pairs([*rows, *_facts(status)])


def _facts(status: Json) -> list[tuple[str, str]]:
    followers = status.get("followers") or {}
    peers = status.get("peers") or ()
    away = [peer["name"] for peer in peers if not peer.get("connected")]
    rows = [
        ("role", str(status.get("role"))),
        ("leader", status.get("leader") or "none"),
        ("voters", ", ".join(status.get("voters") or ()) or "none"),
        ("learners", ", ".join(status.get("learners") or ())),
        ("follows", status.get("source") or ""),
        ("replayed", _replayed(status)),
        ("applied", f"{status.get('applied', 0):,} of {status.get('known', 0):,}"),
        ("staleness", duration(status.get("staleness_s"))),
        (
            "log",
            f"{plural(status.get('segments', 0), 'segment')}, {size(status.get('log_bytes', 0))}",
        ),
        ("followers", ", ".join(f"{name} at {seq:,}" for name, seq in sorted(followers.items()))),
        ("not connected", ", ".join(away)),
        ("member file", status.get("members_problem") or ""),
        ("cluster", str(status.get("cluster"))),
    ]
    return [(name, escape(value)) for name, value in rows if value]


def _replayed(status: Json) -> str:
    """How far a node is that is just starting."""
    if status.get("state") != "replaying":
        return ""
    return f"{status.get('replayed', 0):,} records of a log up to {status.get('replay_total', 0):,}"
