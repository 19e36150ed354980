"""Consensus on what comes next in the log: Multi-Paxos as a pure machine.

**The paper's roles.** After van Renesse's "Paxos Made Moderately Complex": *acceptors* remember, a *scout* wins a
ballot (phase 1), *commanders* get values accepted (phase 2), the *replica* hands out decisions in slot order. One role
a file. A slot is a sequence number of the log, and a value is a block of encoded entries for a range of slots, so that
one Accept carries a batch.

**Stable leader.** After the Sirius paper, section 5: whoever is pre-empted follows; followers forward their requests,
and run for leader only when they have not heard of one for a while. A pre-vote and a check of the quorum keep nodes
that are half cut off from disturbing the others.

**What outlives a crash.** Promises, accepted values and used ballots are in the journal before an answer leaves. A node
without its disk is another node. Decisions are in the log; the journal is trimmed below what the log has.

**Reading order.** `messages`, `effects`, then `voting` with `acceptor`, `running` with `election` and `scout`,
`leading` with `leader`, `commander` and `pulse`; `replica`, `sessions`, `proposer` and `publishers`; `members`,
`genesis` and `joining`; `machine`.
"""

from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Effects
from sirius.paxos.machine import Machine
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Envelope
from sirius.paxos.state import Recovered
from sirius.paxos.values import Codec, Content, Numbers, PValue, Request, Run, Value

__all__ = [
    "Codec",
    "Configuration",
    "Content",
    "Effects",
    "Envelope",
    "Machine",
    "Member",
    "Numbers",
    "PValue",
    "PaxosConfig",
    "Recovered",
    "Request",
    "Run",
    "Value",
]
