"""A mapped file is read-only, outlived by its views, and its ranges are told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.mapped import MappedFile, TensorInfo, check_no_overlap


def test_a_view_is_read_only_and_outlives_close(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")
    file = MappedFile(tmp_path / "x")
    part = file.view[2:4]
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 0
    file.close()
    file.close()
    assert bytes(part) == b"cd"
    with pytest.raises(ModelError, match="closed"):
        _ = file.view


def test_the_identity_changes_when_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    first = MappedFile(tmp_path / "x").stat_key()
    (tmp_path / "y").write_bytes(b"abc")
    os.replace(tmp_path / "y", tmp_path / "x")
    assert MappedFile(tmp_path / "x").stat_key() != first


def test_advice_on_any_range_is_safe(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)) * 64)
    file = MappedFile(tmp_path / "x")
    for offset, size in [(0, 0), (0, 1), (4095, 2), (5000, 9000), (16383, 1)]:
        file.drop(offset, size)
        file.prefetch(offset, size)
    file.prefetch()
    assert int(file.view[5000]) == 5000 % 256
    file.close()
    file.drop(0, 10)


def test_a_folder_and_a_missing_file_are_model_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ModelError, match="cannot open"):
            MappedFile(path)


def test_touching_ranges_are_fine_and_one_shared_byte_is_not() -> None:
    def info(name: str, offset: int, size: int) -> TensorInfo:
        return TensorInfo(name, "u8", (size,), offset, size)

    check_no_overlap([info("b", 10, 5), info("a", 0, 10), info("empty", 3, 0), info("c", 15, 1)])
    with pytest.raises(FormatError, match="'a' and 'b' overlap"):
        check_no_overlap([info("b", 9, 5), info("a", 0, 10)])
    with pytest.raises(FormatError, match="overlap"):
        check_no_overlap([info("a", 0, 10), info("empty", 3, 0), info("b", 4, 1)])
