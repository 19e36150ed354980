"""Log lines for programs."""

from __future__ import annotations

import json
import logging
import sys

from sirius.ops.logs import JsonFormatter


def formatted(record: logging.LogRecord) -> dict[str, object]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found: dict[str, object] = json.loads(line)
    return found


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    log = logging.getLogger("sirius.test")
    return log.makeRecord(log.name, logging.WARNING, "f.py", 1, message, args, None, extra=extra)


def test_a_line_has_time_level_logger_and_message() -> None:
    made = record("%s is %d", "x", 3)
    made.created = 1e9
    assert formatted(made) == {
        "time": "2001-09-09T01:46:40.000+00:00",
        "level": "warning",
        "logger": "sirius.test",
        "message": "x is 3",
    }


def test_what_was_added_is_a_field_of_its_own_and_anything_can_be_written() -> None:
    found = formatted(record("ü", seq=7, path={1}, names=("a", "b")))
    assert (found["message"], found["seq"], found["names"]) == ("ü", 7, ["a", "b"])
    assert found["path"] == "{1}"


def test_an_exception_stays_on_one_line() -> None:
    made = record("it broke")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert str(formatted(made)["exception"]).endswith("ValueError: why")
