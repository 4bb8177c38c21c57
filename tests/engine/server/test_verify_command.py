"""`octavo verify`: what agrees is verified, what does not is told and ends with 1; every source of vectors that there is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.golden import tiny_sentences

from octavo.engine.embedder import Embedder
from octavo.engine.server.cli import main
from octavo.engine.verify import oracle
from octavo.engine.verify.golden import FILE_NAME, read_golden, write_golden

PLACE = ["--device", "reference"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_sentences.write_case("mean", tmp_path / "model")


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Words that name a file of texts."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(["the cat", "a small dog", "", "the old tree", "the dog and the cat"]))
    return ["--texts", str(path)]


def verify(model: Path, *words: str) -> int:
    return main(["verify", str(model), *PLACE, *words])


def installed(monkeypatch: pytest.MonkeyPatch, off_by: float = 0.0, problem: Exception | None = None) -> None:
    """A sentence-transformers whose vectors are ours, `off_by` apart."""

    class Model:
        def __init__(self, folder: str, device: str) -> None:
            assert device == "cpu"
            if problem is not None:
                raise problem
            self.folder = folder

        def float(self) -> Model:
            return self

        def encode(self, texts: list[str], **_: Any) -> Any:
            return Embedder(self.folder, platform="reference").embed(texts, truncate="end") + np.float32(off_by)

    monkeypatch.setitem(sys.modules, oracle.PACKAGE, SimpleNamespace(SentenceTransformer=Model))
    monkeypatch.setattr(oracle, "is_installed", lambda: True)


def test_vectors_stored_beside_the_model_are_the_usual_measure(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the cat", "a small dog", "the old tree"]
    write_golden(model / FILE_NAME, texts, Embedder(model, platform="reference").embed(texts))
    assert verify(model) == 0
    out = capsys.readouterr().out
    assert (
        "3 texts, weights f32, against golden" in out
        and "0.00e+00 (allowed 1e-05)" in out
        and out.endswith("verified\n")
    )


def test_another_value_is_told_with_exit_code_1(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the cat", "a small dog"]
    vectors = Embedder(model, platform="reference").embed(texts)
    vectors[1, 0] += 0.5
    write_golden(model / FILE_NAME, texts, vectors)
    assert verify(model) == 1
    out = capsys.readouterr().out
    assert "values differ by" in out and "text 1 has a cosine of" in out and "verified" not in out
    assert verify(model, "--max-difference", "1", "--min-cosine", "-1", "--min-in-top", "0") == 0


def test_sentence_transformers_is_asked_where_nothing_is_stored(
    model: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch)
    assert verify(model, *texts, "--write") == 0
    out = capsys.readouterr().out
    assert "4 texts, weights f32, against sentence-transformers" in out and f"written: {model / FILE_NAME}" in out
    stored, vectors = read_golden(model / FILE_NAME)
    assert stored[3] == "the dog and the cat" and len(vectors) == 4
    assert verify(model) == 0 and "against golden" in capsys.readouterr().out
    installed(monkeypatch, off_by=1e-3)
    assert verify(model, *texts, "--against", "sentence-transformers") == 1
    assert "values differ by" in capsys.readouterr().out


def test_a_format_is_compared_with_the_model_in_float32(
    model: Path, texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(model, *texts, "--against", "float32", "--quantization", "bf16") == 0
    out = capsys.readouterr().out
    assert "weights bf16, against float32" in out and "(asked 0.9995)" in out and "allowed" not in out


def test_the_texts_that_come_along_are_taken_where_none_are_given(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(model, "--against", "float32") == 0
    assert "68 texts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "there is nothing to compare with"),
        (["--against", "golden"], "cannot read"),
        (["--golden", "/nowhere/golden.jsonl"], "cannot read /nowhere/golden.jsonl: No such file"),
        (["--against", "sentence-transformers"], "sentence-transformers is not installed here; pip install"),
        (["--against", "golden", "--write"], "--texts and --write are for other comparisons"),
        (["--against", "float32", "--texts", "/nowhere"], "cannot read /nowhere: No such file"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    words: list[str], problem: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oracle, "is_installed", lambda: False)
    assert verify(model, *words) == 2
    err = capsys.readouterr().err
    assert problem in err and err.count("\n") == 1


def test_a_model_that_the_other_program_refuses_is_one_line(
    model: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch, problem=KeyError("no such module"))
    assert verify(model, *texts) == 2
    assert "sentence-transformers cannot run" in capsys.readouterr().err


def test_vectors_of_another_model_are_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_golden(model / FILE_NAME, ["the cat"], np.ones((1, 3), np.float32))
    assert verify(model) == 2
    assert "have 3 values" in capsys.readouterr().err
