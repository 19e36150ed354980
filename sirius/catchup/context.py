"""What the parts of the machine share: who and when, the settings, and what comes out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import Effects
from sirius.catchup.messages import Message
from sirius.paxos.members import Member


@dataclass(slots=True)
class Context:
    """One a machine. Parts read `now` and add to `out`."""

    me: Member
    config: CatchupConfig
    rng: random.Random
    now: float
    is_voter: bool = False
    out: Effects = field(default_factory=Effects)

    def send(self, to: Member, message: Message) -> None:
        self.out.send.append((to, message))

    def jittered(self, wait_s: float) -> float:
        """Return a moment about `wait_s` from now, so that nodes do not march in step."""
        return self.now + wait_s * (0.5 + self.rng.random())
