"""The command `sirius`: run a node, look at a cluster, copy a log, see it all in a demonstration."""
