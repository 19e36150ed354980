"""What a task does when Spark does not want the rest of its rows: it ends, and says nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def while_spark_listens() -> Iterator[None]:
    """End this process without a word at the first row that nobody takes.

    `show()`, `first()` and every LIMIT have Spark hang up on its Python worker as soon as it has rows enough, and then
    do away with it. The worker, which only finds out at its next write, would print a `BrokenPipeError` with a
    traceback: Spark's daemon does so whatever is set, and a source has no say in how its rows are written. Spark uses
    the worker again for other work if it was heard to the end; so it is as it was then.
    """
    if not _in_task():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    heard = True
    try:
        yield
    except GeneratorExit:
        # A write that had to wait failed, which is no signal yet. The next one, of what is left in buffers, is.
        heard = False
        raise
    finally:
        if heard:
            signal.signal(signal.SIGPIPE, before)


def _in_task() -> bool:
    from pyspark import TaskContext

    # Who may say what signals do is the main thread alone; Spark runs tasks in it.
    return TaskContext.get() is not None and current_thread() is main_thread()
