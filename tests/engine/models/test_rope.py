"""Rotary settings: both spellings of config.json, GGUF metadata, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.models import rope
from octavo.engine.models.reader import Description
from octavo.platforms.types import Rope


def built(config: dict[str, Any], *, max_len: int = 1024, **more: Any) -> Rope:
    params = rope.hf_params(Description(config, "f"), **more)
    return rope.build(params, head_dim=8, max_len=max_len, max_positions=1024, where="f")


def test_old_and_new_spelling_agree() -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 64}
    old = built({"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **scaling}})
    new = built({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **scaling}})
    assert old == new and old.attention_factor > 1


def test_partial_rotation_counts_whole_pairs_of_the_head() -> None:
    turned = built({"rope_theta": 1e4, "partial_rotary_factor": 0.5})
    assert turned.rotary_dim == 4 and turned.inv_freq == (1.0, pytest.approx(0.01))


def test_layer_types_have_their_own_tables() -> None:
    config = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}
    full, local = (built(config, layer_type=f"{name}_attention") for name in ("full", "sliding"))
    assert full.inv_freq[1] < local.inv_freq[1]
    with pytest.raises(ModelError, match="one table, or a table for all layers"):
        built(config)


def test_longrope_chooses_once_by_the_length_limit() -> None:
    config = {
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        "original_max_position_embeddings": 128,
    }
    short, long = built(config, max_len=128), built(config, max_len=129)
    assert short.inv_freq[0] == 1.0 and long.inv_freq[0] == 0.5
    assert short.attention_factor == long.attention_factor > 1


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"rope_type": "axial"}, "rope kind 'axial' is not served; served are default, linear"),
        ({"rope_type": "default", "mrope_section": [1, 1, 2]}, "not understood: mrope_section"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, "not understood: beta_fast"),
    ],
)
def test_unknown_kinds_and_keys_are_refused(table: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        built({"rope_parameters": {"rope_theta": 1e4, **table}})


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"rope_theta": ""}, "rope rope_theta is ''; it must be a finite number above 0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"rope_theta": True}, "rope_theta is True"),
        ({"partial_rotary_factor": "x"}, "partial_rotary_factor is 'x'"),
        ({"rope_type": "linear", "factor": 1e-320}, "turns by inf per token"),
        ({"rope_type": "linear", "factor": -2.0}, "factor is -2.0"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": "no"}, "truncate is 'no'; it must be true or false"),
        (
            {"rope_type": "longrope", "short_factor": [1.0] * 4},
            "long_factor is None; it must be a list of finite numbers",
        ),
        ({"rope_type": "longrope", "short_factor": [1.0, "2", 1, 1], "long_factor": [1.0] * 4}, "short_factor is"),
        ({"rope_type": "longrope", "short_factor": [], "long_factor": [1.0] * 4}, r"short_factor is \[\]"),
    ],
)
def test_numbers_that_no_angle_comes_of_are_named(table: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        built({"rope_parameters": {"rope_theta": 1e4, **table}})


def test_parameters_of_yarn_that_are_zero_count_as_absent() -> None:
    table = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0}
    assert built({"rope_parameters": table}) == built({"rope_parameters": {**table, "mscale": 0, "beta_fast": 0.0}})


def test_gguf_factors_divide_frequencies() -> None:
    meta = Description({"llama.rope.freq_base": 1e4}, "f", prefix="llama.")
    params = rope.gguf_params(meta, divisors=[1.0, 1.0, 8.0, 8.0])
    turned = rope.build(params, head_dim=8, max_len=64, max_positions=64, where="f")
    plain = built({"rope_theta": 1e4}, max_len=64)
    assert turned.inv_freq[:2] == plain.inv_freq[:2]
    assert turned.inv_freq[2] == pytest.approx(plain.inv_freq[2] / 8)
