"""`waltool completion`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sirius.errors import UsageError
from waltool.command import command as _command
from waltool.output import Output

_VARIABLE = "_WALTOOL_COMPLETE"


@_command(
    "waltool completion bash > ~/.local/share/bash-completion/completions/waltool",
    'eval "$(waltool completion zsh)"',
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(out: Output, shell: str) -> None:
    """Print the completion script of a shell.

    Reads no log and changes nothing.
    """
    from waltool.cli import cli

    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"no completion for {shell}")
    out.line(completion(cli, {}, "waltool", _VARIABLE).source())
