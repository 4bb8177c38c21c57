"""The repository's own rules, grouped by what they read: Python sources, C++ sources, plain files, built objects."""
