"""Builds GGUF bytes field by field, right or wrong, independently of the writer under test."""

from __future__ import annotations

import struct


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key_u32(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def key_str(key: str, value: str | bytes) -> bytes:
    return text(key) + struct.pack("<I", 8) + text(value)


def tensor(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def preamble(num_tensors: int, num_keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys)


def gguf(
    *, keys: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), data: int = 0, version: int = 3, align: int = 32
) -> bytes:
    """A whole file: `keys` and `tensors` as encoded above, then padding and `data` zero bytes."""
    head = preamble(len(tensors), len(keys), version) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % align) + b"\0" * data
