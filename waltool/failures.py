"""How this command fails: see `sirius.console.program`. A message is one line, whatever a log or a path holds."""

from __future__ import annotations

from typing import Final

from sirius.console.program import INTERRUPTED, Program
from waltool.text import escape

__all__ = ["INTERRUPTED", "PROGRAM", "complain"]

PROGRAM: Final = Program("waltool", escape)
complain = PROGRAM.complain
