"""The content digest of weights files: BLAKE3, computed once and remembered by the files' identity.

A file's identity is (device, inode, size, mtime_ns, ctime_ns): replacing or editing it changes at least one. A digest
is remembered only when the identity was the same before and after reading and the file was not changed in the last two
seconds (time stamps are coarse). The store is one small JSON file, replaced by rename; a damaged one is ignored and
rewritten. Reading 100 MB takes about 50 ms from the page cache: never do it on the start path, use a thread.
Source: https://github.com/BLAKE3-team/BLAKE3.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from octavo.engine.loading.mapped import MappedFile

StatKey = tuple[int, int, int, int, int]

STORE_NAME = "digests.json"
_CHUNK_BYTES = 1 << 24  # pages are given back chunk by chunk, so hashing adds no more than this
_MAX_ENTRIES = 512
_MAX_STORE_BYTES = 1 << 20
_SETTLED_NS = 2_000_000_000


def files_digest(files: Sequence[MappedFile], cache_dir: Path | None = None) -> bytes:
    """32 bytes that identify the content of `files` in order: BLAKE3 over the files' BLAKE3 digests."""
    from blake3 import blake3

    total = blake3()
    for file in files:
        total.update(file_digest(file, cache_dir))
    return total.digest()


def file_digest(file: MappedFile, cache_dir: Path | None = None) -> bytes:
    """BLAKE3 of one file, 32 bytes, taken from the store in `cache_dir` when its identity is known there."""
    from blake3 import blake3

    key = ":".join(str(part) for part in file.stat_key())
    store = _read_store(cache_dir)
    known = store.get(key)
    if known is not None:
        with contextlib.suppress(ValueError):
            digest = bytes.fromhex(known)
            if len(digest) == 32:
                return digest
    hasher = blake3(max_threads=blake3.AUTO)
    for start in range(0, file.size, _CHUNK_BYTES):
        hasher.update(file.view[start : start + _CHUNK_BYTES].data)
        file.drop(start, _CHUNK_BYTES if start + _CHUNK_BYTES <= file.size else file.size - start)
    digest = hasher.digest()
    if cache_dir is not None and _is_settled(file):
        _write_store(cache_dir, {**store, key: digest.hex()})
    return digest


def _is_settled(file: MappedFile) -> bool:
    try:
        now = os.stat(file.path)
    except OSError:
        return False
    same = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns) == file.stat_key()
    return same and time.time_ns() - max(now.st_mtime_ns, now.st_ctime_ns) > _SETTLED_NS


def _read_store(cache_dir: Path | None) -> dict[str, str]:
    if cache_dir is None:
        return {}
    path = cache_dir / STORE_NAME
    try:
        if path.stat().st_size > _MAX_STORE_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _write_store(cache_dir: Path, store: dict[str, str]) -> None:
    """Best effort: a read-only cache only means that the digest is computed again."""
    newest = dict(list(store.items())[-_MAX_ENTRIES:])
    temporary = cache_dir / f"{STORE_NAME}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        cache_dir.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(newest))
        os.replace(temporary, cache_dir / STORE_NAME)
