"""Whether a model gives vectors is read from its description, and what cannot be read is nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.engine.models.kind import gives_vectors


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["BertModel"], True),
        (["ModernBertForMaskedLM"], True),
        (["LlamaForCausalLM"], False),
        ([], False),
        (None, False),
    ],
)
def test_architectures(tmp_path: Path, architectures: list[str] | None, expected: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": architectures, "hidden_size": 8}))
    assert gives_vectors(tmp_path) is expected
    assert gives_vectors(tmp_path / "model.safetensors") is expected
    assert not gives_vectors(tmp_path / "model.gguf")


def test_a_module_list_is_that_of_a_model_of_vectors(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    assert gives_vectors(str(tmp_path))


def test_what_is_not_there_or_broken_is_left_to_who_opens_it(tmp_path: Path) -> None:
    assert not gives_vectors(tmp_path / "nothing") and not gives_vectors(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": "BertModel"}')
    assert not gives_vectors(tmp_path)
