"""The program of docs/retrieval.md: files go in once, questions find texts, a file of another model is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tests.golden import tiny_pairs, tiny_sentences

PAGE = Path(__file__).parents[2] / "docs" / "retrieval.md"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's program, with tiny models instead of those of the page."""
    source = PAGE.read_text().split("```python\n")[1].split("```")[0]
    program = ModuleType("shelf")
    exec(compile(source, "shelf.py", "exec"), program.__dict__)
    program.EMBEDDER = str(tiny_sentences.write_case("prompt", tmp_path / "embedder"))  # type: ignore[attr-defined]
    program.RERANKER = str(tiny_pairs.write_case(next(iter(tiny_pairs.CASES)), tmp_path / "reranker"))  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("The cat sat on the mat.\n\nThe old tree\n\n\n\nThe old tree\n\na river")
    Path("two.txt").write_text("The old tree\n\na small house")
    return program


def texts_of(program: ModuleType) -> list[tuple[str, str]]:
    db = program.apsw.Connection("notes.db")
    return list(db.execute("SELECT source, body FROM texts ORDER BY id"))


def test_paragraphs_go_in_once(shelf: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.main("notes.db", "add", "one.txt", "two.txt")
    assert capsys.readouterr().out == "one.txt: 3 paragraphs\ntwo.txt: 2 paragraphs\n"
    stored = texts_of(shelf)
    assert len(stored) == 5 and ("two.txt", "The old tree") in stored
    Path("two.txt").write_text("The old tree\n\na green house")
    shelf.main("notes.db", "add", "one.txt", "two.txt")
    assert capsys.readouterr().out == "one.txt: 0 paragraphs\ntwo.txt: 1 paragraphs\n"
    assert len(texts_of(shelf)) == 6


def test_a_question_finds_texts_best_first(shelf: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.main("notes.db", "add", "one.txt", "two.txt")
    capsys.readouterr()
    shelf.main("notes.db", "ask", "the", "old", "tree")
    rows = capsys.readouterr().out.splitlines()
    scores = [float(row.split()[0]) for row in rows]
    assert len(rows) == 5 and scores == sorted(scores, reverse=True)
    assert {row.split(": ", 1)[1] for row in rows} == {body for _, body in texts_of(shelf)}


def test_the_nearest_text_is_the_question_itself(shelf: ModuleType) -> None:
    shelf.CANDIDATES = 1  # type: ignore[attr-defined]
    embedder, reranker = shelf.octavo.Embedder(shelf.EMBEDDER), shelf.octavo.Reranker(shelf.RERANKER)
    db = shelf.opened("notes.db", embedder)
    shelf.add(db, embedder, ["one.txt"])
    (answer,) = shelf.ask(db, embedder, reranker, "a river")
    assert answer[1:] == ("one.txt", "a river")


def test_a_file_of_another_model_is_refused(shelf: ModuleType, tmp_path: Path) -> None:
    shelf.main("notes.db", "add", "one.txt")
    shelf.EMBEDDER = str(tiny_sentences.write_case("dense", tmp_path / "other"))  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match=r"was filled by .*take a new file"):
        shelf.main("notes.db", "ask", "the cat")


def test_an_empty_shelf_says_so(shelf: ModuleType) -> None:
    with pytest.raises(SystemExit, match="add files first"):
        shelf.main("notes.db", "ask", "the cat")
