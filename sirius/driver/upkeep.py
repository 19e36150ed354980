"""Compaction while the node runs, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sirius.errors import SiriusError
from sirius.wal import CompactionPolicy, CompactionResult, Log

_log = logging.getLogger("sirius.upkeep")


class Upkeep:
    """Runs a compaction pass every so often. `run` may also be called from any thread."""

    def __init__(
        self,
        log: Callable[[], Log],
        policy: Callable[[], CompactionPolicy],
        compacted: Callable[[], None],
        interval_s: float | None,
    ) -> None:
        self._log = log
        self._policy = policy
        self._compacted = compacted
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sirius-upkeep", daemon=True)
        self.passes = 0
        self.began_at: float | None = None
        """When the last pass began, by the time of day."""
        self.last_s = 0.0
        """How long the last pass took."""
        self.last: CompactionResult | None = None
        self.problem: str | None = None
        """Why the last pass failed, if it did."""

    def start(self) -> None:
        """Begin; the first pass comes after one interval."""
        if self._interval_s is not None:
            self._thread.start()

    def close(self) -> None:
        """End the pass that is under way, and come to an end."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.run()
            except Exception as error:
                # Also a bug: a thread that ends without a word would let the log grow for good.
                self.problem = f"compaction failed: {error}"
                _log.warning("compaction failed, and is tried again later: %s", error)

    def run(self) -> CompactionResult:
        """Run one pass in this thread, and remove what earlier ones replaced."""
        began, self.began_at = time.monotonic(), time.time()
        log = self._log()
        try:
            result = log.compact(self._policy(), should_stop=self._stop.is_set)
        except BaseException:
            # A part of the segments may have been swapped before.
            with suppress(SiriusError):
                self._compacted()
            raise
        self._compacted()
        log.retire()
        self.last, self.last_s, self.problem = result, time.monotonic() - began, None
        # Last: whoever has seen a pass looks at what came of it.
        self.passes += 1
        _log.info("compacted the log in %.1f s: %s", self.last_s, result)
        return result
