"""`sirius transfer-leadership`"""

from __future__ import annotations

import click

from sirius.cli.command import command as _command
from sirius.cli.nodes import Connection, connection_options
from sirius.cli.output import Output
from sirius.errors import UsageError


@_command(
    "sirius transfer-leadership 127.0.0.1:7401",
    "sirius transfer-leadership --to 127.0.0.1:7402 127.0.0.1:7401",
)
@connection_options
@click.option("--to", metavar="NAME", help="The node that is to lead; default: the furthest one.")
@click.argument("address")
def command(out: Output, connection: Connection, address: str, to: str | None) -> int:
    """Have another node lead.

    ADDRESS is a node of the cluster; if it does not lead, the one that does is asked. Updates go on: those that are
    under way are answered first. Harmless, and done by itself when a node that leads is stopped.
    """
    with connection.client([address]) as client:
        leader = client.status().get("leader")
    if not leader:
        raise UsageError(f"{address} knows no leader at present")
    if to == leader:
        out.remark(f"{leader} leads already")
        return 0
    with connection.client([str(leader)]) as client:
        client.transfer_leadership(to)
        new = client.members().leader
    if out.as_json:
        out.object({"from": leader, "leader": new.name if new else None})
    else:
        out.line(f"{leader} leads no more; {new.name if new else 'another one'} does")
    return 0
