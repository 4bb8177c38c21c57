"""Tables in the docs come from the registries; a stale table and a link to nothing are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ci import docs

from octavo.engine.models import registry
from octavo.quant.formats import FORMATS

PAGE = "before\n<!-- begin {0}: written by ci/docs.py -->\nSTALE\n<!-- end {0} -->\nafter\n"


@pytest.mark.parametrize("name", docs.TABLES)
def test_table_is_written_between_its_marks(name: str) -> None:
    text = docs.written(PAGE.format(name))
    assert text.startswith("before\n<!-- begin") and text.endswith(f"<!-- end {name} -->\nafter\n")
    assert "STALE" not in text and text.count("\n|") > 3
    assert docs.written(text) == text


def test_every_architecture_and_format_has_a_row() -> None:
    assert all(f"| `{name}` |" in docs.models() for name in registry.HF)
    assert all(f"| `{name}` |" in docs.encoders() for name in (*registry.ENCODERS, *registry.BARE, *registry.SCORED))
    assert "|  |" not in docs.models() + docs.encoders(), "a row without a golden case"
    weights = [f.name for f in FORMATS if f.is_packed_everywhere]
    assert all(f"| `{name}` |" in docs.formats() for name in weights)


def test_unknown_table_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        docs.written(PAGE.format("nonsense"))


def test_link_to_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# Part\n")
    text = "[a](there.md#part) [b](gone.md) [c](https://example.com/x)"
    assert list(docs.broken_links(tmp_path / "page.md", text)) == ["page.md: links to gone.md, which is not there"]


def test_link_to_no_heading_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# Over `HTTP`, twice\n")
    text = "## Its own\n[a](there.md#over-http-twice) [b](there.md#over-http) [c](#its-own) [d](#gone)"
    assert list(docs.broken_links(tmp_path / "page.md", text)) == [
        "page.md: links to there.md#over-http, and there is no such heading",
        "page.md: links to #gone, and there is no such heading",
    ]


def test_rows_that_no_table_has_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    sound = "| a | b |\n| --- | ---: |\n| `x | y` | 1 |\n\n```\n| code\n```\n"
    assert not [*docs.broken_tables(tmp_path / "page.md", sound)]
    problems = [*docs.broken_tables(tmp_path / "page.md", sound + "| apart | 2 |\n\n" + sound)]
    assert problems == ["page.md:8: a row outside of a table; join it to the one above or give it a header"]


def test_rows_with_too_few_cells_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    text = "| a | b |\n| --- | --- |\n| 1 |\n"
    assert list(docs.broken_tables(tmp_path / "page.md", text)) == ["page.md:3: 1 cells in a table of 2"]


def test_readme_holds_what_is_served() -> None:
    assert "<!-- begin models" in (docs.ROOT / "README.md").read_text()
