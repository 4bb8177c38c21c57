"""Model families: one file each, described by data, and one registry."""
