"""The seam between a stream of invalidations and whatever drops what it names.

A **source** tells a **sink**, one call at a time and in order:

=============================  ==============================================================================
`sink.invalidated(seq, keys)`  these keys changed; with this, everything up to `seq` has been told
`sink.alive(seq, age_s)`       a beat: `age_s` ago there was nothing beyond `seq`
`sink.gap(seq)`                I go on behind `seq` and cannot tell what was before: forget everything older
=============================  ==============================================================================

A source begins behind the position that the sink has, or says `gap` if it cannot. A sink without a position gets a
`gap` first: what it holds, and the loads that it has under way, are older than the stream.

A beat may name a number that was not told yet: it counts once it is. So a cache knows how old it can be at most, also
when nothing changes, and that it may be too old when nothing is heard (the last word of a quiet stream is missed
otherwise).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol, Self

from sirius.errors import UsageError

_log = logging.getLogger("sirius.broadcast")
BEAT_S: Final = 1.0


class InvalidationSink(Protocol):
    """Something that drops keys: `NearCache`, and the adapters for other caches.

    A source calls it from a thread of its own, or from the thread that applies updates: so a sink neither blocks nor
    raises. One that talks to a network stands behind a `Relay`.
    """

    @property
    def position(self) -> int | None:
        """Everything up to here was told; None: nothing was."""
        ...

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Drop these keys. A batch that came before may be ignored."""
        ...

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        """Remember that the stream is alive."""
        ...

    def gap(self, seq: int) -> None:
        """Drop everything, and take `seq` as the position, be it lower than before."""
        ...


class InvalidationSource(Protocol):
    """A stream of invalidations, for one sink. Used once: started, closed."""

    def start(self, sink: InvalidationSink, after: int | None) -> None:
        """Begin to tell `sink` what comes behind `after`; behind the end, after a `gap`, if it is None.

        Returns at once, or when everything that is known was told.
        """
        ...

    def beat(self) -> None:
        """Tell the sink how fresh it is, if that is known. Called from time to time, by one thread; may block.

        It may raise: then it is called again the next time, and nobody has vouched meanwhile.
        """
        ...

    def close(self) -> None:
        """Tell nothing any more once this returns. Closing twice is harmless."""
        ...


class Feed:
    """Runs a source into a sink until it is closed. A thread of its own asks the source for beats."""

    def __init__(
        self,
        sink: InvalidationSink,
        source: InvalidationSource,
        *,
        after: int | None = None,
        beat_s: float = BEAT_S,
    ) -> None:
        if not beat_s > 0:
            raise UsageError(f"beat_s is a number of seconds above 0, not {beat_s!r}")
        self._source = source
        self._beat_s = beat_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sirius-feed", daemon=True)
        source.start(sink, sink.position if after is None else after)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._source.beat()
            except Exception as error:
                # Whatever it was: not heard is not vouched for, and the cache sees its staleness grow.
                _log.info("no beat: %r", error)
            if self._closed.wait(self._beat_s):
                return

    def close(self) -> None:
        """Stop. Waits for the source; closing twice is harmless."""
        self._closed.set()
        self._source.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def feed(
    sink: InvalidationSink,
    source: InvalidationSource,
    *,
    after: int | None = None,
    beat_s: float = BEAT_S,
) -> Feed:
    """Begin to drop from `sink` what `source` invalidates, behind `after` or where the sink got to."""
    return Feed(sink, source, after=after, beat_s=beat_s)


class Translated:
    """A sink whose keys are not those of the stream: `keys_of` tells which of its keys a changed key stands behind.

    So one cached page may depend on many keys of the log, and one key may be part of many pages. `keys_of` is called
    on the source's thread, for every key: let it be quick. If it raises, everything is dropped.
    """

    def __init__(self, sink: InvalidationSink, keys_of: Callable[[str], Iterable[str]]) -> None:
        self._sink = sink
        self._keys_of = keys_of

    @property
    def position(self) -> int | None:
        return self._sink.position

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Drop what these keys stand behind."""
        try:
            mine = {ours for key in keys for ours in self._keys_of(key)}
        except Exception:
            _log.exception("keys_of raised at %d: everything is dropped", seq)
            self._sink.gap(seq)
        else:
            self._sink.invalidated(seq, mine)

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        """Hand a beat on."""
        self._sink.alive(seq, age_s)

    def gap(self, seq: int) -> None:
        """Hand a gap on."""
        self._sink.gap(seq)
