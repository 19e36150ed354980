"""Proxies: the Proxy-Level Protocol (Sprinkler, section 3.1) as a pure machine.

Each region has a proxy. It owns some streams, numbers what is published in them, and gets all others from other
proxies. It keeps a history of every stream, and is a member of its region, where clients ask it for what they do
not find elsewhere.

**What must never happen.** A proxy's history of a stream is a prefix of the owner's, with holes only where events
were collected. A batch is taken if it follows what one has, and never otherwise; whoever sent it.

**Soft state.** Subscriptions, views and what is expected of whom can be lost at any time at either end. A history
must not be lost at the owner; elsewhere it is fetched again.

**What counts.** What a proxy takes may have to wait, for a disk or for the replicas of the proxy. Until it counts, it
is told to nobody, and collects nothing (`book`).

Reading order: `book`, `shelf`, `upstream`, `window`, `downstream`, `intake`, `region`, `machine`.
"""

from sirius.broadcast.proxy.machine import Proxy
from sirius.broadcast.proxy.shelf import Layout, OpenHistory

__all__ = ["Layout", "OpenHistory", "Proxy"]
