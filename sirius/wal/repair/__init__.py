"""Repair: what is left of a damaged log, and making a sound one of it."""
