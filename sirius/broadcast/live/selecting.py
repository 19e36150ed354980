"""Leaving out of a batch what has another topic. What is left out is a hole, as anything else that is left out."""

from __future__ import annotations

import numpy as np

from sirius.broadcast.events import EventBatch
from sirius.broadcast.predicates.terms import topic_matches
from sirius.errors import UsageError


def check_pattern(pattern: str) -> None:
    """Raise `UsageError` if no topic can ever fit a pattern: whoever waits for it would wait for ever."""
    names = pattern.split("/")
    if (pattern and pattern != "*" and names[0]) or any(
        "*" in name and name != "*" for name in names
    ):
        raise UsageError(
            f"{pattern!r} fits no topic: it begins with a slash, and a star stands for a whole name"
        )


def with_topic(batch: EventBatch, pattern: str) -> EventBatch:
    """Return the batch with the events whose topic fits. It covers the same range."""
    fits = np.array([topic_matches(pattern, topic) for topic in batch.topics], np.bool_)
    if fits.all() or not len(batch):
        return batch
    return batch.selected(np.flatnonzero(fits[batch.topic_ids]))
