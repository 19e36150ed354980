"""`sirius completion`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sirius.cli.command import command as _command
from sirius.cli.output import Output
from sirius.errors import UsageError

_VARIABLE = "_SIRIUS_COMPLETE"


@_command(
    "sirius completion bash > ~/.local/share/bash-completion/completions/sirius",
    'eval "$(sirius completion zsh)"',
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(out: Output, shell: str) -> None:
    """Print the completion script of a shell."""
    from sirius.cli.group import cli

    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"no completion for {shell}")
    out.line(completion(cli, {}, "sirius", _VARIABLE).source())
