"""The digest is the content's, is remembered by identity, and is never wrong after a change."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from blake3 import blake3

from octavo.engine.loading import digest
from octavo.engine.loading.digest import STORE_NAME, file_digest, files_digest
from octavo.engine.loading.mapped import MappedFile


def _old_file(path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> MappedFile:
    """A file whose time stamps have settled, as seen by the module."""
    path.write_bytes(content)
    later = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(digest.time, "time_ns", lambda: later)
    return MappedFile(path)


def test_a_digest_is_blake3_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    file = MappedFile(tmp_path / "a")
    assert file_digest(file) == blake3(b"hello").digest()
    assert files_digest([file]) == blake3(blake3(b"hello").digest()).digest()


def test_chunks_give_the_digest_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_CHUNK_BYTES", 4096)
    content = os.urandom(4096 * 3 + 5)
    (tmp_path / "a").write_bytes(content)
    assert file_digest(MappedFile(tmp_path / "a")) == blake3(content).digest()


def test_an_empty_file_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert file_digest(MappedFile(tmp_path / "a")) == blake3(b"").digest()


def test_a_remembered_digest_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _old_file(tmp_path / "a", b"content", monkeypatch)
    first = file_digest(file, tmp_path / "cache")
    file.close()
    again = MappedFile(tmp_path / "a")
    again.size = 0  # were it read again, the digest would be that of nothing
    assert file_digest(again, tmp_path / "cache") == first


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_digest(_old_file(tmp_path / "a", b"content", monkeypatch), tmp_path)
    changed = _old_file(tmp_path / "a", b"CONTENT", monkeypatch)
    assert file_digest(changed, tmp_path) == blake3(b"CONTENT").digest()


def test_a_file_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    file_digest(MappedFile(tmp_path / "a"), tmp_path / "cache")
    assert not (tmp_path / "cache" / STORE_NAME).exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff", b"[" * 10_000])
def test_a_damaged_store_is_ignored_and_rewritten(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _old_file(tmp_path / "a", b"content", monkeypatch)
    (tmp_path / STORE_NAME).write_bytes(damage)
    assert file_digest(file, tmp_path) == blake3(b"content").digest()
    assert blake3(b"content").hexdigest().encode() in (tmp_path / STORE_NAME).read_bytes()


def test_an_entry_that_is_no_digest_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _old_file(tmp_path / "a", b"content", monkeypatch)
    key = ":".join(map(str, file.stat_key()))
    (tmp_path / STORE_NAME).write_text(f'{{"{key}": "zz"}}')
    assert file_digest(file, tmp_path) == blake3(b"content").digest()


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _old_file(tmp_path / "a", b"content", monkeypatch)
    (tmp_path / "blocked").write_bytes(b"a file where a folder should be")
    assert file_digest(file, tmp_path / "blocked") == blake3(b"content").digest()
