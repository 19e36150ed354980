"""The acceptor's memory on disk."""

from sirius.wal.journal.journal import Journal

__all__ = ["Journal"]
