"""The console script `waltool`, also `python -m waltool`."""

from __future__ import annotations

import sys
from typing import NoReturn

from waltool.cli import run


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
