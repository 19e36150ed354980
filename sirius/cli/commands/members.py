"""`sirius members`"""

from __future__ import annotations

import click

from sirius.cli.command import command as _command
from sirius.cli.nodes import Connection, connection_options
from sirius.cli.output import Output
from sirius.cli.text import escape


@_command(
    "sirius members 127.0.0.1:7401",
    "sirius members --json --config sirius.toml | jq -r .voters[].name",
)
@connection_options
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
def command(out: Output, connection: Connection, addresses: tuple[str, ...]) -> int:
    """Show who votes, who leads and who is to vote.

    The first node that can be reached is asked. The voters stand in the log: what a node says is as new as its log.
    Exits with 1 if there is no cluster yet, or no leader that the node knows.
    """
    with connection.client(connection.named(addresses)) as client:
        configuration, leader = client.members()
    voters = configuration.voters if configuration else ()
    learners = configuration.learners if configuration else ()
    if out.as_json:
        out.object(
            {
                "cluster": f"{configuration.cluster:016x}" if configuration else None,
                "number": configuration.number if configuration else None,
                "leader": leader.name if leader else None,
                "voters": [{"name": each.name, "node": f"{each.node:016x}"} for each in voters],
                "learners": [{"name": each.name, "node": f"{each.node:016x}"} for each in learners],
            }
        )
        return 0 if configuration and leader else 1
    if configuration is None:
        out.line("there is no cluster yet")
        return 1
    rows = [
        (
            escape(member.name),
            "leader" if member == leader else role,
            f"{member.node:016x}",
        )
        for role, members_ in (("voter", voters), ("learner", learners))
        for member in members_
    ]
    out.table(("name", "role", "node"), rows, "name role node")
    if leader is None:
        out.line(out.paint("this node knows no leader", "yellow"))
    return 0 if leader else 1
