"""The text side of a model is found wherever a tokenizer may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.server.fakes import make_tokenizer

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import tokenizer_paths
from octavo.engine.model_text import load_text


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_a_tokenizer_without_a_model_is_enough(tmp_path: Path, name: str) -> None:
    make_tokenizer().rust.save(str(tmp_path / "tokenizer.json"))
    assert load_text(tmp_path / name).encode("hi") == make_tokenizer().encode("hi")
    assert tokenizer_paths(tmp_path / name) == [tmp_path / "tokenizer.json"]


def test_a_path_without_a_tokenizer_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing: config.json.*a tokenizer"):
        load_text(tmp_path)
    with pytest.raises(ModelError, match=r"no tokenizer.json"):
        load_text(tmp_path / "tokenizer.json")
    for name in ("", "tokenizer.json", "m.gguf"):
        assert tokenizer_paths(tmp_path / name) == []
