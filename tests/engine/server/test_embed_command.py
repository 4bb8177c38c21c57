"""`octavo embed`: lines in, JSON lines out, in order; a bad line costs only itself; a broken run is resumed."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import tiny_sentences, tiny_tokens

from octavo.engine.embedder import Embedder
from octavo.engine.server.cli import main
from octavo.engine.server.commands import embed

PLACE = ["--device", "reference"]
TEXTS = ["the cat", "a small dog", " ", "the old tree"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sentences.write_case("default_prompt", tmp_path_factory.mktemp("model"))


def vectors(model: Path, texts: list[Any], **options: Any) -> Any:
    return Embedder(model, platform="reference").embed(texts, **options)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_of_a_pipe_is_a_text(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS)))
    monkeypatch.setattr(embed, "CHUNK", 3)  # fewer than there are lines
    assert main(["embed", str(model), "-", *PLACE]) == 0
    found = rows(capsys.readouterr().out)
    assert [row["index"] for row in found] == [0, 1, 2, 3] and all(row["num_tokens"] > 1 for row in found)
    assert np.array([row["embedding"] for row in found], np.float32).tobytes() == vectors(model, TEXTS).tobytes()


def test_json_lines_keep_ids_and_name_what_is_wrong(model: Path, tmp_path: Path) -> None:
    lines = [
        '{"id": "a", "body": "the cat", "other": 1}',
        "not json",
        '{"id": 7, "text": "x"}',
        '"the old tree"',
        "[5, 6, 7]",
        '{"id": null, "body": ""}',
        '{"body": 5}',
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n")
    words = [
        "embed",
        str(model),
        str(source),
        "--field",
        "body",
        "--output",
        str(target),
        "--encoding",
        "base64",
        *PLACE,
    ]
    assert main([*words, "--prompt", ""]) == 1
    found = rows(target.read_text())
    assert [row.get("id", "-") for row in found] == ["a", "-", 7, "-", "-", None, "-"]
    assert [bool(row.get("error")) for row in found] == [False, True, True, False, False, True, True]
    assert "not JSON" in found[1]["error"] and "no 'body' (--field); it has 'id', 'text'" in found[2]["error"]
    assert found[5]["error"] == "it is empty" and "give text or a list of token ids" in found[6]["error"]
    wanted = vectors(model, ["the cat", "the old tree", [5, 6, 7]], prompt="")
    for row, vector in zip((found[0], found[3], found[4]), wanted, strict=True):
        assert base64.b64decode(row["embedding"]) == vector.tobytes()


def test_a_broken_run_goes_on_behind_its_last_whole_line(model: Path, tmp_path: Path) -> None:
    source, whole, broken = tmp_path / "in.txt", tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    source.write_text("\n".join(TEXTS) + "\n")
    words = ["embed", str(model), str(source), *PLACE, "--output"]
    assert main([*words, str(whole)]) == 0
    lines = whole.read_text().splitlines(keepends=True)
    broken.write_text("".join(lines[:2]) + lines[2][:40])
    assert main([*words, str(broken), "--resume"]) == 0
    assert broken.read_text() == whole.read_text()
    assert main([*words, str(broken), "--resume"]) == 0 and broken.read_text() == whole.read_text()
    assert main([*words, str(tmp_path / "new.jsonl"), "--resume"]) == 0
    assert (tmp_path / "new.jsonl").read_text() == whole.read_text()


def test_options_arrive(model: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("the cat " * 100 + "\n")
    more = ["--truncate", "end", "--dimensions", "8", "--allow-dimensions", "--prompt-name", "query", "--isa", "scalar"]
    assert main(["embed", str(model), str(source), "--output", str(target), *more, "--threads", "1", *PLACE]) == 0
    (row,) = rows(target.read_text())
    assert row["num_tokens"] == 64 < row["truncated_from"]
    embedder = Embedder(model, platform="reference", allows_dimensions=True)
    wanted = embedder.embed("the cat " * 100, truncate="end", dimensions=8, prompt_name="query")
    assert np.array(row["embedding"], np.float32).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-", "--resume"], 2, "--resume needs --output"),
        (["-", "--prompt", "a", "--prompt-name", "b"], 2, "both given"),
        (["nowhere.txt"], 2, "cannot open nowhere.txt: No such file"),
        (["--prompt-name", "task", "-"], 1, "prompt 'task' is not one of the model's"),
        (["--dimensions", "8", "-"], 1, "does not say that its vectors may be cut"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str],
    code: int,
    says: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n"))
    assert main(["embed", str(model), *words, *PLACE]) == code
    assert says in capsys.readouterr().err


def test_other_outputs_than_one_vector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined, late = (
        tiny_tokens.write_joined(tmp_path / "joined", ".pt"),
        tiny_tokens.write_case("late", tmp_path / "late"),
    )
    file = tmp_path / "texts.txt"
    file.write_text("the cat\na dog\n\n")
    assert main(["embed", str(joined), str(file), *PLACE, "--outputs", "dense,sparse"]) == 1
    found = rows(capsys.readouterr().out)
    wanted = Embedder(joined, platform="reference").encode_each(["the cat", "a dog"], outputs=["dense", "sparse"])
    for row, one in zip(found, wanted, strict=False):
        assert one.dense is not None and one.sparse is not None and "multi_vector" not in row
        assert row["embedding"] == one.dense.tolist() and row["num_tokens"] == one.num_tokens
        assert row["sparse"] == {"ids": one.sparse.ids.tolist(), "weights": one.sparse.weights.tolist()}
    assert found[2] == {"index": 2, "error": "it is empty"}
    assert main(["embed", str(late), str(file), *PLACE, "--role", "query", "--encoding", "base64"]) == 1
    first = rows(capsys.readouterr().out)[0]["multi_vector"]
    (one,) = Embedder(late, platform="reference").encode_each("the cat", role="query")
    assert one.multi_vector is not None
    assert b"".join(base64.b64decode(vector) for vector in first) == one.multi_vector.astype("<f4").tobytes()
    assert main(["embed", str(late), str(file), *PLACE, "--dimensions", "4", "--role", "query"]) == 2
    assert "leave out --outputs and --role" in capsys.readouterr().err
    assert main(["embed", str(late), str(file), *PLACE, "--outputs", "dense"]) == 1
    assert "this model gives multi_vector" in capsys.readouterr().err
