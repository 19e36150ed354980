"""The console script `sirius`, also `python -m sirius`."""

from __future__ import annotations

import io
import sys
from typing import NoReturn

from sirius.cli.group import run


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets its escape, and not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
