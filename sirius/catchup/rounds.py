"""One question at a time, and when to ask the next.

After the Sirius paper, section 5.1: a round begins periodically, and goes on with the same source for as long as that
has more. The period is drawn anew each time. After a failure the waits grow; with news that something is missing the
next round comes early. Whatever does not answer the question under way, in kind and number and from the one asked, is
late, repeated or astray, and nobody's. (Parts of a file are asked for beside this: see `sirius.catchup.segments`.)
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from sirius.catchup.context import Context
from sirius.catchup.messages import Pull, PullSegments
from sirius.catchup.sources import Source
from sirius.paxos.members import Member

Question = Pull | PullSegments
Q = TypeVar("Q", Pull, PullSegments, Question)


class Asked(NamedTuple, Generic[Q]):
    """A question under way."""

    source: Source
    question: Q
    at: float


class Rounds:
    """The question under way, or the moment at which the next round is due."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._request = context.rng.getrandbits(48)
        self._asked: Asked[Question] | None = None
        self._due = context.now
        self._failures = 0

    @property
    def is_due(self) -> bool:
        return self._asked is None and self._context.now >= self._due

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def ask(self, source: Source, question: Question) -> None:
        self._asked = Asked(source, question, self._context.now)
        self._context.send(source.member, question)

    def answered(self, sender: Member, request: int, kind: type[Q]) -> Asked[Q] | None:
        """Return the question of this kind that this answers, if it does."""
        asked = self._asked
        if asked is None or not isinstance(asked.question, kind):
            return None
        if asked.source.member != sender or asked.question.request != request:
            return None
        self._asked = None
        return Asked(asked.source, asked.question, asked.at)

    def answered_any(self, sender: Member, request: int) -> Asked[Question] | None:
        """Like `answered`, for an answer to any kind of question."""
        asked = self._asked
        return self.answered(sender, request, type(asked.question)) if asked else None

    def expired(self) -> Asked[Question] | None:
        """Return the question that was not answered in time, once."""
        asked = self._asked
        if asked is None or self._context.now - asked.at < self._context.config.request_timeout_s:
            return None
        self._asked = None
        return asked

    def is_prompt(self, asked: Asked[Q]) -> bool:
        return self._context.now - asked.at <= self._context.config.request_timeout_s / 2

    def forget(self) -> None:
        """Wait for no answer any more."""
        self._asked = None

    def succeeded(self) -> None:
        self._failures = 0

    def rest(self) -> None:
        """End the round; the next one comes with the next period."""
        self._due = self._context.jittered(self._context.config.interval_s)

    def back_off(self) -> None:
        """End the round in failure."""
        config = self._context.config
        wait = min(config.retry_s * 2.0**self._failures, config.backoff_s_max)
        self._failures = min(self._failures + 1, 64)
        self._due = self._context.jittered(wait)

    def wait(self, seconds: float) -> None:
        """Go on after a while."""
        self._due = self._context.now + min(seconds, self._context.config.backoff_s_max)

    def hurry(self, seconds: float) -> None:
        """Begin the next round in so many seconds at the latest, unless the last one failed."""
        if not self._failures:
            self._due = min(self._due, self._context.now + seconds)
