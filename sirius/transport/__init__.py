"""gRPC: how the messages of the machines get from node to node, and how clients talk to a node.

===============  ======================================================================
`wire`           every message as bytes; built on `shapes` and `columns`
`links`          the outgoing side: one stream a peer, with an `outbox` each
`server`         the incoming side: one port for nodes, clients and administrators
`publishing`     the part of the server that clients write through
`client`         a client for scripts, without asyncio; `sending` is its part for updates
`failures`       what a call that failed means
`security`       TLS, who may do what, and the refusal to talk in the clear
`limits`         every bound, by name
===============  ======================================================================

Nothing is imported here: who wants the client alone loads the client alone.
"""

import os

# gRPC writes notes on lost connections to the standard error of whoever embeds it, past all logging. The links tell
# of them by `logging`. Whoever wants gRPC's own words sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
