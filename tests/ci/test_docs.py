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
    assert all(f"| `{name}` |" in docs.encoders() for name in registry.ENCODERS)
    weights = [f.name for f in FORMATS if f.is_packed_everywhere]
    assert all(f"| `{name}` |" in docs.formats() for name in weights)


def test_unknown_table_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        docs.written(PAGE.format("nonsense"))


def test_link_to_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("")
    text = "[a](there.md#part) [b](gone.md) [c](https://example.com/x)"
    assert list(docs.broken_links(tmp_path / "page.md", text)) == ["page.md: links to gone.md, which is not there"]


def test_readme_holds_what_is_served() -> None:
    assert "<!-- begin models" in (docs.ROOT / "README.md").read_text()
