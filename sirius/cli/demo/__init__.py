"""The demonstration: a cluster of real processes on this machine, its data, its traffic, the death of its leader."""
