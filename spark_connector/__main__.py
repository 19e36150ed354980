"""`python -m spark_connector compact films smaller`: bulk work on Spark, as a command.

Also what `spark-submit` takes: its master and settings then count.
"""

from __future__ import annotations

import sys

from spark_connector.cli import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
