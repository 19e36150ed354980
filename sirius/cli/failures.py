"""How this command fails: see `sirius.console.program`. Of a file with several mistakes each has its line."""

from __future__ import annotations

from typing import Final

from sirius.cli.text import escape
from sirius.console.program import Program


def _lines(message: str) -> str:
    return "\n".join(escape(line) for line in message.splitlines())


PROGRAM: Final = Program("sirius", _lines)
guarded = PROGRAM.guarded
