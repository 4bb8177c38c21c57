"""Stored vectors: what was written is read again, other programs' files are, and a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from octavo.engine.errors import FormatError
from octavo.engine.verify.golden import read_golden, write_golden

VECTORS = np.array([[1.5, -2.25e-7, 3], [0, 1, 1 / 3]], np.float32)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    write_golden(path, ["eins", "日本"], VECTORS)
    texts, vectors = read_golden(path)
    assert texts == ["eins", "日本"] and vectors.tobytes() == VECTORS.tobytes()
    assert [item.name for item in tmp_path.iterdir()] == ["golden.jsonl"]


def test_lists_of_numbers_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text('\n{"text": "a", "embedding": [1, 2.5], "model": "other"}\n\n')
    texts, vectors = read_golden(path)
    assert texts == ["a"] and vectors.tolist() == [[1, 2.5]]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: not JSON"),
        ("[1, 2]", "line 2: it must be an object with text"),
        ('{"text": 3, "embedding": [1, 2]}', "line 2: it must be an object with text"),
        ('{"text": "a"}', "line 2: it must be an object with text"),
        ('{"text": "a", "embedding": [1]}', "line 2: 1 values, and the lines before have 2"),
        ('{"text": "a", "embedding": []}', "one list of finite numbers"),
        ('{"text": "a", "embedding": [1, NaN]}', "one list of finite numbers"),
        ('{"text": "a", "embedding": [1, true]}', "cannot be read"),
        ('{"text": "a", "embedding": [[1, 2]]}', "cannot be read"),
        ('{"text": "a", "embedding": "AAAA"}', "cannot be read"),
        ('{"text": "a", "embedding": "?"}', "cannot be read"),
        ('{"text": "a", "embedding": null}', "cannot be read"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text(json.dumps({"text": "x", "embedding": [1, 2]}) + "\n" + line + "\n")
    with pytest.raises(FormatError, match=problem):
        read_golden(path)


def test_a_file_of_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text("\n")
    with pytest.raises(FormatError, match="has no vectors"):
        read_golden(path)
