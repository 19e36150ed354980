"""Checking every byte of a log."""
