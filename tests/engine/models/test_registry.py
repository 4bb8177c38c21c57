"""Architecture names: known rows load, unknown ones say what is known."""

from __future__ import annotations

import pytest
from tests.golden import tiny

from octavo.engine.errors import ModelError
from octavo.engine.models import registry


@pytest.mark.parametrize("name", registry.HF)
def test_every_hf_row_loads(name: str) -> None:
    family = registry.hf_family(name, "folder")
    assert {"tokens", "final_norm", "o", "down"} <= set(family.hf.roles)


@pytest.mark.parametrize("name", registry.GGUF)
def test_every_gguf_row_loads(name: str) -> None:
    family = registry.gguf_family(name, "file")
    assert family.from_gguf is not None and family.gguf is not None


def test_every_hf_row_has_a_golden_case() -> None:
    assert {config["architectures"][0] for config in tiny.CASES.values()} == set(registry.HF)


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"x: architecture 'LLamaForCausalLM' is not served; .*did you mean LlamaForC"):
        registry.hf_family("LLamaForCausalLM", "x")
    with pytest.raises(ModelError, match="'mamba' is not served; served are llama, "):
        registry.gguf_family("mamba", "x")


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("BertModel", "it gives vectors, not tokens; use octavo.Embedder"),
        ("BertForMaskedLM", "it gives vectors, not tokens; use octavo.Embedder"),
        ("BertForSequenceClassification", r"it gives scores, not tokens; use octavo\.Reranker or octavo\.Classifier"),
        ("DebertaV2ForTokenClassification", r"it gives scores, not tokens; use octavo\.Reranker or octavo\.Classifier"),
    ],
)
def test_an_encoder_asked_for_tokens_is_told_what_runs_it(name: str, use: str) -> None:
    with pytest.raises(ModelError, match=f"{name} is an encoder: {use}"):
        registry.hf_family(name, "folder")
