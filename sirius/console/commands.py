"""Commands in a table: imported when they are called, so that the help of the whole answers at once."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, NamedTuple

import click
from click.shell_completion import CompletionItem


class Row(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    section: str
    help: str


class Commands(click.Group):
    """A group that imports a command when it is called. A class below says which there are, and in which package."""

    table: ClassVar[Mapping[str, Row]]
    package: ClassVar[str]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        row = self.table.get(cmd_name)
        if row is None:
            return None
        command: click.Command = import_module(f"{self.package}.{row.module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section in dict.fromkeys(row.section for row in self.table.values()):
            rows = [(name, row.help) for name, row in self.table.items() if row.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.table if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.table[name].help) for name in names]
        return items or super().shell_complete(ctx, incomplete)


class ExampleCommand(click.Command):
    """A command whose help ends with examples, each on a line of its own."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_examples(formatter, self.examples)


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """Write a section of examples, one a line."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
