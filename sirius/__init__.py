"""Sirius keeps a reference dataset in the memory of every application server.

The application reads its own data structures. Sirius orders the updates, keeps them in a log on
disk, brings a node back after a crash, and hands the updates to whoever follows.

This module holds the promised names and imports nothing heavy. Today the log is what there is:
`sirius.wal`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
