"""Clients: the Region-Level Protocol (Sprinkler, section 3.2) as a pure machine.

Clients of a region pass events on to each other: who has more notifies a few neighbours, who has less asks. They
keep little, and whoever finds nobody asks the proxy. A client comes and goes as it likes; one that resumes says how
far it was.

Reading order: `fetching`, `publisher`, `machine`; membership is `sirius.broadcast.membership`.
"""

from sirius.broadcast.client.machine import Client

__all__ = ["Client"]
