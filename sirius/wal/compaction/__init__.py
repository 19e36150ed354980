"""Compaction: which segments to rewrite, what is live in them, and the rewriting."""
