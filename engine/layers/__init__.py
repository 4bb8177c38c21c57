"""Layers shared by model families, written against the op contract."""
