"""`octavo rerank`: documents in, JSON lines out, best first or in order; a bad line costs only itself; runs are resumed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden import tiny_pairs, tiny_rankers

from octavo.engine.reranker import Reranker
from octavo.engine.server.cli import main
from octavo.engine.server.commands import rerank

PLACE = ["--device", "reference"]
TEXTS = ["the cat", "a small dog", "green house", "the old tree"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pairs.write_case("one", tmp_path_factory.mktemp("model"))


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_documents_of_a_pipe_are_ranked(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS)))
    monkeypatch.setattr(rerank, "CHUNK", 3)  # fewer than there are lines
    assert main(["rerank", str(model), "-", "--query", "a cat", *PLACE, "--return-documents"]) == 0
    found = rows(capsys.readouterr().out)
    wanted = Reranker(model, platform="reference").rank("a cat", TEXTS)
    assert [(row["index"], row["score"], row["num_tokens"]) for row in found] == [
        (one.index, one.score, one.num_tokens) for one in wanted
    ]
    assert [row["text"] for row in found] == [TEXTS[one.index] for one in wanted]


def test_an_instruction_is_the_generators_and_refused_by_encoders(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = tiny_rankers.write_case("card", tmp_path)
    file = tmp_path / "docs.txt"
    file.write_text("\n".join(TEXTS))
    given = ["--query", "a cat", *PLACE, "--instruction", "Find houses"]
    assert main(["rerank", str(generator), str(file), *given]) == 0
    found = rows(capsys.readouterr().out)
    wanted = Reranker(generator, platform="reference").rank("a cat", TEXTS, instruction="Find houses")
    assert [(row["index"], row["score"]) for row in found] == [(one.index, one.score) for one in wanted]
    assert main(["rerank", str(model), str(file), *given]) != 0
    assert "takes no instruction" in capsys.readouterr().err


def test_objects_keep_their_ids_and_a_bad_line_costs_only_itself(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"id": "x", "body": "the cat"},
        {"id": "y"},
        {"id": "z", "body": "a dog"},
        {"id": "w", "body": "cat " * 99},
    ]
    file = tmp_path / "docs.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), "{broken"]))
    command = ["rerank", str(model), str(file), "--query", "a cat", "--field", "body", *PLACE]
    assert main([*command, "--top-n", "1"]) == 1
    out, err = capsys.readouterr()
    found = rows(out)
    assert [row.get("id") for row in found[1:]] == ["y", "w", None] and "score" in found[0]
    assert (
        "has no 'body'" in found[1]["error"] and "is the limit" in found[2]["error"] and "not JSON" in found[3]["error"]
    )
    assert "3 of 5 documents have no score" in err
    assert main([*command, "--truncate", "only_second", "--in-order", "--raw-scores"]) == 1
    found = rows(capsys.readouterr().out)
    assert [row["index"] for row in found] == [0, 1, 2, 3, 4] and found[3]["truncated_from"] > 100
    scores = Reranker(model, platform="reference").score([("a cat", "the cat"), ("a cat", "a dog")], activation="none")
    assert [found[0]["score"], found[2]["score"]] == scores.tolist()


def test_every_line_may_have_a_query_and_a_broken_run_goes_on(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"query": query, "text": text} for query in ("a cat", "the river") for text in TEXTS]
    file, out = tmp_path / "pairs.jsonl", tmp_path / "out.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), json.dumps("no query")]))
    command = ["rerank", str(model), str(file), *PLACE, "--output", str(out)]
    assert main(command) == 1
    whole = out.read_text()
    found = rows(whole)
    scores = Reranker(model, platform="reference").score([(line["query"], line["text"]) for line in lines])
    assert [row.get("score") for row in found] == [*scores.tolist(), None] and "has no query" in found[-1]["error"]
    out.write_text(whole[: len(whole) // 2])  # in the middle of a line
    assert main([*command, "--resume"]) == 1
    assert out.read_text() == whole
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--query", "a", "--resume", "--output", "x"], "add --in-order"),
        (["--top-n", "3"], "--top-n is of a ranking; give --query"),
        (["--query", "a", "--in-order", "--top-n", "3"], "--top-n is of a ranking"),
        (["--query", ""], "--query is empty"),
        (["--resume"], "--resume needs --output"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], text: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "docs.txt"
    file.write_text("a\n")
    assert main(["rerank", str(model), str(file), *PLACE, *options]) == 2
    assert text in capsys.readouterr().err
