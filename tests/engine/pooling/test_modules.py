"""The module list of a folder, read in full: what is not understood is refused by name, what disagrees is logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden import tiny_sentences

from octavo.engine.errors import ModelError
from octavo.engine.pooling.modules import Pipeline, read_pipeline, transformer_folder


def read(folder: Path, config: dict[str, Any] | None = None, **tokenizer_config: Any) -> Pipeline:
    return read_pipeline(folder, config=config or {}, hidden=64, max_tokens=136, tokenizer_config=tokenizer_config)


def changed(folder: Path, file: str, change: dict[str, Any]) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def test_a_whole_folder(tmp_path: Path) -> None:
    usage = {
        "__version__": {"sentence_transformers": "5.0.0"},
        "prompts": {"query": "query: ", "document": None},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 16,
    }
    dense = {"out_features": 32, "activation_function": "torch.nn.modules.linear.Identity", "bias": False}
    folder = tiny_sentences.write(tmp_path, dense=(dense,), usage=usage, text={"do_lower_case": True})
    found = read(folder, {"matryoshka_dimensions": [32, 16]})
    assert (found.modes, found.includes_prompt, found.normalizes, found.width) == (("mean",), True, True, 32)
    (layer,) = found.dense
    assert (layer.num_in, layer.num_out, layer.has_bias, layer.activation) == (64, 32, False, "none")
    assert layer.folder == folder / "2_Dense"
    assert (found.max_tokens, found.lowers_case) == (64, True)
    assert (found.prompts, found.default_prompt) == ({"query": "query: ", "document": ""}, "query")
    assert (found.similarity, found.dims, found.truncate_dim, found.notes) == ("dot", (32, 16), 16, ())


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_weightedmean_tokens": True, "pooling_mode_max_tokens": True}, ("max", "weightedmean")),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, ("mean_sqrt_len_tokens",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
    ],
)
def test_every_mode_in_either_spelling(pooling: dict[str, Any], modes: tuple[str, ...], tmp_path: Path) -> None:
    found = read(tiny_sentences.write(tmp_path, pooling=pooling))
    assert found.modes == modes and found.width == 64 * len(modes) and not found.notes


def test_what_disagrees_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pooling = {"pooling_mode": "cls", "pooling_mode_mean_tokens": True}
    found = read(tiny_sentences.write(tmp_path, pooling=pooling, text={"max_seq_length": 500}))
    assert found.modes == ("cls",) and found.max_tokens == 136
    assert len(found.notes) == 2 == len(caplog.records)
    assert "pooling_mode cls counts, not the flags of mean" in found.notes[0]
    assert "max_seq_length is 500; the encoder takes 136 tokens" in found.notes[1]


def test_a_folder_without_modules_is_pooled_by_the_mean_and_says_so(tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path)
    (folder / "modules.json").unlink()
    found = read(folder)
    assert (found.modes, found.normalizes) == (("mean",), False)
    assert "has no modules.json: vectors are the mean of all tokens, not normalised" in found.notes[0]


def test_without_a_limit_of_its_own_the_tokenizers_counts(tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path, text={"max_seq_length": None})
    assert read(folder, model_max_length=100).max_tokens == 100
    assert read(folder, model_max_length=10**30).max_tokens == 136
    (folder / "sentence_bert_config.json").unlink()
    assert read(folder, model_max_length=50).max_tokens == 50


@pytest.mark.parametrize(
    ("file", "change", "text"),
    [
        ("1_Pooling/config.json", {"word_embedding_dimension": 32}, "word_embedding_dimension is 32; .*width, 64"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "median"},
            "pooling_mode is 'median'; it must be one or several of cls",
        ),
        ("1_Pooling/config.json", {"pooling_mode_median": True}, "keys .* not understood .*: pooling_mode_median=True"),
        (
            "2_Dense/config.json",
            {"in_features": 65},
            "in_features is 65; it must be the width of what comes before, 64",
        ),
        ("2_Dense/config.json", {"activation_function": "evil.Tanh"}, "activation_function is 'evil.Tanh'; .*Tanh"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual is True"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name is 'token_embeddings'"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length is 0; it must be at least 1"),
        ("sentence_bert_config.json", {"strange": 1}, "not understood for this family: strange=1"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "bm25"}, "similarity_fn_name is 'bm25'"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "q"},
            "default_prompt_name is 'q'; .*one of no prompts",
        ),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type is 'SparseEncoder'"),
    ],
)
def test_what_is_not_served_is_refused(file: str, change: dict[str, Any], text: str, tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path, dense=({"out_features": 32},))
    changed(folder, file, change)
    with pytest.raises(ModelError, match=text):
        read(folder)


def modules(folder: Path, *entries: tuple[str, str]) -> None:
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(entries)]
    (folder / "modules.json").write_text(json.dumps(listed))


FIRST = ("", "sentence_transformers.models.Transformer")
POOL = ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (
            (FIRST, POOL, ("2_X", "sentence_transformers.models.WeightedLayerPooling")),
            "WeightedLayerPooling at 2_X is not",
        ),
        ((FIRST, POOL, ("2_X", "custom_st.Thing")), "custom_st.Thing is not served: it is code of its own"),
        ((FIRST,), "has no Pooling"),
        ((FIRST, ("../1_Pooling", POOL[1])), "path '../1_Pooling' leaves the model's folder"),
        ((FIRST, FIRST, POOL), ""),
        ((POOL,), "begins with Pooling; models that begin with Transformer"),
        ((FIRST, POOL, POOL), "Pooling at 1_Pooling is not served there"),
        (
            (FIRST, POOL, ("2_N", MOD := "sentence_transformers.models.Normalize"), ("2_Dense", MOD[:-9] + "Dense")),
            "Dense at",
        ),
        ((FIRST, ("9_Pooling", POOL[1])), "9_Pooling/config.json is missing"),
    ],
)
def test_modules_that_are_not_served_are_named(entries: tuple[tuple[str, str], ...], text: str, tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path, dense=({"out_features": 32},))
    modules(folder, *entries)
    with pytest.raises(ModelError, match=text or "Transformer behind other modules"):
        read(folder)


def test_the_encoder_may_lie_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path)
    assert transformer_folder(folder) == folder
    modules(folder, ("0_Transformer", FIRST[1]), POOL)
    assert transformer_folder(folder) == folder / "0_Transformer"
    (folder / "modules.json").unlink()
    assert transformer_folder(folder) == folder


def test_dropout_changes_nothing(tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path)
    modules(folder, FIRST, POOL, ("2_Dropout", "sentence_transformers.models.Dropout"))
    assert not read(folder).normalizes
