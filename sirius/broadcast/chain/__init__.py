"""Replicated proxies: chain replication (Sprinkler, section 3.3) as a pure machine.

A proxy is a line of replicas. The first one, the head, takes what is published and what other proxies forward; every
replica passes it on to the next; the last one, the tail, gives it out, and how far it is comes back along the line. So
whatever somebody was told or given, every replica has.

**What must never happen.** Something that was acknowledged or given out is lost or gets another number while one
member of the newest configuration lives; a publication takes effect twice. What has not come to the tail is in no
history: it waits, and whoever leaves the chain drops it. Messages carry the number of the configuration, and who is
in another one is not heard: so a head that was removed gets nothing to the tail, and answers nobody.

**Change.** Whoever is silent is removed by a neighbour. Whoever starts anew joins behind the tail, which feeds it. When
little is missing, the tail counts it in; when nothing is, it hands over. `configuration` says how a service decides
between proposals.

Reading order: `configuration`, `feeding`, `replica`, `routes`. Decision 0015 gives the reasons.

This package imports nothing by itself: the machines know its types.
"""
