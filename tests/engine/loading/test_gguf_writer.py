"""The writer stores what it was given or refuses it; no half-written file is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0, "u32"), ((1 << 32) - 1, "u32"), (1 << 32, "u64"), (-1, "i32"), (-(1 << 31) - 1, "i64"),
        ([1, -2], "i32"), ([1, 1 << 40], "u64"),
    ],
)  # fmt: skip
def test_integers_take_the_smallest_usual_type(value: object, stored: str, tmp_path: Path) -> None:
    by_rule, by_name = GGUFWriter(), GGUFWriter()
    by_rule.add("k", value)
    by_name.add("k", value, stored)
    by_rule.write(tmp_path / "a.gguf")
    by_name.write(tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (300, "u8", "does not fit"),
        ("x", "u32", "does not fit"),
        ([], None, "name a value_type"),
        ([1, "a"], None, "name a value_type"),
        (None, None, "name a value_type"),
        (1, "u128", "unknown type"),
        (np.zeros((2, 2)), None, "2-D"),
        (np.zeros(2, np.complex64), None, "complex64"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(value: object, kind: str | None, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        GGUFWriter().add("some.key", value, kind)


def test_an_empty_list_with_a_type_is_stored(tmp_path: Path) -> None:
    writer = GGUFWriter()
    writer.add("k", [], "str")
    writer.write(tmp_path / "x.gguf")
    assert GGUFFile.open(tmp_path / "x.gguf").metadata["k"].tolist() == []


def test_repeated_keys_and_tensors_are_refused() -> None:
    writer = GGUFWriter()
    writer.add("k", 1)
    writer.add_tensor("w", "f32", (1,), np.zeros(4, np.uint8))
    with pytest.raises(ModelError, match="already set"):
        writer.add("k", 2)
    with pytest.raises(ModelError, match="already added"):
        writer.add_tensor("w", "f32", (1,), np.zeros(4, np.uint8))


def test_wrong_tensor_bytes_leave_no_file(tmp_path: Path) -> None:
    writer = GGUFWriter()
    writer.add_tensor("w", "q4_0", (2, 32), np.zeros(35, np.uint8))
    with pytest.raises(ModelError, match=r"'w' has 35 bytes; q4_0 \(2, 32\) takes 36"):
        writer.write(tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == []


def test_tensors_given_as_functions_are_called_one_at_a_time(tmp_path: Path) -> None:
    calls: list[str] = []
    writer = GGUFWriter(alignment=128)
    for name in ("a", "b"):
        content = np.full(8, ord(name), np.uint8)
        writer.add_tensor(name, "f16", (4,), lambda name=name, content=content: calls.append(name) or content)
    assert calls == []
    writer.write(tmp_path / "x.gguf")
    file = GGUFFile.open(tmp_path / "x.gguf")
    assert calls == ["a", "b"] and file.alignment == 128
    assert bytes(file.data("b")) == b"b" * 8 and file.tensors["b"].offset % 128 == 0


def test_formats_gguf_does_not_have_are_refused(tmp_path: Path) -> None:
    writer = GGUFWriter()
    writer.add_tensor("w", "u16", (1,), np.zeros(2, np.uint8))
    with pytest.raises(ModelError, match="u16 cannot be stored"):
        writer.write(tmp_path / "x.gguf")
