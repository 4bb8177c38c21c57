"""Vectors kept beside a model to verify it by: `octavo_golden.jsonl`, one JSON object per text.

    {"text": "...", "embedding": [...] or base64 of little-endian float32}

`octavo verify --write` makes such a file; any other program can. Invariant: what is read is finite and of one width.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.engine.errors import FormatError
from octavo.platforms.types import F32

FILE_NAME = "octavo_golden.jsonl"


def read_golden(path: Path) -> tuple[list[str], F32]:
    """(texts, float32 [texts, dim]). FormatError names the line that cannot be used."""
    texts: list[str] = []
    vectors: list[F32] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            text, vector = _parsed(line, f"{path}, line {number}")
            if vectors and vector.shape != vectors[0].shape:
                raise FormatError(
                    f"{path}, line {number}: {len(vector)} values, and the lines before have {len(vectors[0])}"
                )
            texts.append(text)
            vectors.append(vector)
    if not texts:
        raise FormatError(f"{path} has no vectors; each line is an object with text and embedding")
    return texts, np.stack(vectors)


def write_golden(path: Path, texts: Sequence[str], vectors: F32) -> None:
    """Writes the file whole, or leaves what was there."""
    fresh = path.with_name(path.name + ".part")
    with open(fresh, "w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors, strict=True):
            packed = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            file.write(json.dumps({"text": text, "embedding": packed}, ensure_ascii=False) + "\n")
    fresh.replace(path)


def _parsed(line: str, where: str) -> tuple[str, F32]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise FormatError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or "embedding" not in row:
        raise FormatError(f"{where}: it must be an object with text (a string) and embedding")
    vector = _vector(row["embedding"], where)
    if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
        raise FormatError(f"{where}: the embedding must be one list of finite numbers")
    return row["text"], vector


def _vector(value: Any, where: str) -> F32:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
            raise ValueError("numbers, or base64 of float32")
        return np.array(value, np.float32)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise FormatError(f"{where}: the embedding cannot be read: {error}") from None
