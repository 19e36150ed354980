"""The log as Spark DataFrames. Nothing of it is here yet.

This package will hold the data source named "sirius": batch and streaming reads of a log, a sink
that writes one, and bulk work on large logs (export, import, the state at a sequence number,
diff, compaction). It reads the log through `sirius.wal` and never starts a node.
"""
