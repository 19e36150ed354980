"""The broadcast layer on the network: the machines of `sirius.broadcast`, driven over `sirius.transport`."""

# Before anything loads gRPC: this package keeps it from writing to the standard error of whoever embeds it.
import sirius.transport  # noqa: F401
