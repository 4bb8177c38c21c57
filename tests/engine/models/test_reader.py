"""Descriptions are read strictly: what could change a number is read or refused."""

from __future__ import annotations

import math

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.models.reader import Description, round_to


def test_unread_keys_that_may_matter_are_refused_by_name() -> None:
    cfg = Description({"hidden_size": 8, "clip_qkv": 6.0}, "folder")
    assert cfg.whole("hidden_size") == 8
    with pytest.raises(ModelError, match=r"folder: .*clip_qkv=6\.0"):
        cfg.finish()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bos_token_id", 1),
        ("transformers_version", "5.0"),
        ("attention_dropout", 0.1),
        ("use_cache", True),
        ("clip_qkv", None),
        ("alibi", False),
        ("extra", {}),
        ("_name_or_path", "x"),
        ("unsloth_fixed", True),
    ],
)
def test_harmless_and_empty_keys_pass(key: str, value: object) -> None:
    Description({key: value}, "folder").finish()


@pytest.mark.parametrize("value", ["64", 64.0, True, [64]])
def test_a_wrong_type_is_refused_with_the_value(value: object) -> None:
    with pytest.raises(ModelError, match=r"hidden_size is .*; it must be a whole number"):
        Description({"hidden_size": value}, "folder").whole("hidden_size")


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", True, {"a": 1}, [1.0]])
def test_what_is_no_finite_number_is_refused_with_the_value(value: object) -> None:
    with pytest.raises(ModelError, match=r"rms_norm_eps is .*; it must be a finite number"):
        Description({"rms_norm_eps": value}, "folder").number("rms_norm_eps")


def test_a_missing_key_says_so() -> None:
    with pytest.raises(ModelError, match="hidden_size is missing"):
        Description({}, "folder").whole("hidden_size")


def test_null_and_absent_differ_where_it_matters() -> None:
    assert Description({"cap": None}, "f").optional("cap", 30.0) is None
    assert Description({}, "f").optional("cap", 30.0) == 30.0


def test_expect_compares_types_too() -> None:
    Description({"causal": True}, "f").expect("causal", True)
    with pytest.raises(ModelError, match="causal is 1"):
        Description({"causal": 1}, "f").expect("causal", True)


def test_gguf_keys_outside_the_architecture_do_not_matter() -> None:
    meta = Description(
        {"general.name": "x", "tokenizer.ggml.tokens": [1], "llama.block_count": 2}, "f", prefix="llama."
    )
    assert meta.whole("block_count") == 2
    meta.finish()
    with pytest.raises(ModelError, match=r"llama\.expert_count=8"):
        Description({"llama.expert_count": 8}, "f", prefix="llama.").finish()


def test_scales_round_as_tensors_of_the_type_do() -> None:
    assert round_to(math.sqrt(640), "bfloat16") == 25.25
    assert round_to(math.sqrt(3072), "bfloat16") == 55.5
    assert round_to(1.00390625, "bfloat16") == 1.0  # a tie goes to even
    assert round_to(1.01171875, "bfloat16") == 1.015625
    assert round_to(0.1, "float16") == 0.0999755859375
    assert round_to(0.1, "float32") != 0.1
