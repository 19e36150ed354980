"""Streams and Sirius logs: a history that is kept in one (`history`), and a log that is a stream (`stream`).

A log's compaction keeps the newest update of each key, and key GC of a stream the newest event of each key: it is the
same, with the same sequence numbers, and what it leaves out is a hole in both.
"""
