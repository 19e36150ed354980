"""Log lines for programs: one JSON object a line, for whoever collects the logs of many machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest is what a caller has added with `extra`."""


class JsonFormatter(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, what was added, and the exception, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Part of the interface of logging. What JSON does not know is written as text."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)
