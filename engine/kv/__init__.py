"""Paged memory: block pool, prefix cache, groups."""
