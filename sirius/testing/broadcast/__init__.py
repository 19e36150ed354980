"""A seeded simulator that tries to break the broadcast layer, and the workloads of its paper."""
