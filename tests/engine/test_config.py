"""An option out of range is named when it is given, not when something breaks of it."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine.config import CHOICES, EngineConfig, read_environment, shown_variables
from octavo.engine.core import POLICIES
from octavo.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy": "lifo"}, "policy=lifo: allowed are fcfs, priority"),
        ({"kv_dtype": "int4"}, "kv_dtype=int4: allowed are f32"),
        ({"kv_dtype": "fp8_e5m2"}, r"kv_dtype=fp8_e5m2: allowed are f32, bf16, f16, int8, fp8; take fp8 \(E4M3\)"),
        ({"packed_cache": "maybe"}, "auto, on, off"),
        ({"num_threads": 0}, "num_threads=0: it must be at least 1"),
        ({"num_threads": 5000}, "num_threads=5000: it must be at most 1024"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_batch_tokens": -5}, "max_batch_tokens=-5"),
        ({"max_model_len": 1}, "at least 2"),
        ({"kv_bytes": 0}, "kv_bytes=0"),
        ({"max_model_len": "4k"}, "max_model_len='4k': it must be a whole number"),
        ({"num_threads": True}, "num_threads=True"),
        ({"itl_ms": 0.0}, "itl_ms=0.0: it must be above 0"),
        ({"itl_ms": float("nan")}, "itl_ms=nan"),
        ({"itl_ms": 1e9}, "at most 600000 milliseconds"),
        ({"itl_ms": "20"}, "itl_ms='20': it must be a number"),
        ({"device": "cuda:1", "platform": "x86"}, "device=cuda:1 and platform=x86 were both given; give device alone"),
        ({"max_batch_tokens": 8}, "max_num_seqs=64: more than max_batch_tokens=8"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EngineConfig("model", **options)


@pytest.mark.parametrize("isa", ["scalar, AVX2", ("scalar", "avx2")])
def test_levels_may_be_given_as_the_command_line_takes_them(isa: Any) -> None:
    assert EngineConfig("model", isa=isa).isa == ("scalar", "avx2")


def test_an_empty_list_of_levels_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'' names no CPU level"):
        EngineConfig("model", isa="")  # type: ignore[arg-type]


def test_fp8_keys_and_values_have_the_names_that_others_give_them() -> None:
    assert [EngineConfig("model", kv_dtype=name).kv_dtype for name in ("fp8", "fp8_e4m3")] == ["fp8", "fp8"]


def test_every_policy_can_be_chosen() -> None:
    assert set(CHOICES["policy"]) == set(POLICIES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OCTAVO_THREADS", "0"),
        ("OCTAVO_THREADS", "x"),
        ("OCTAVO_THREADS", "1025"),
        ("OCTAVO_THREADS", "²"),
        ("OCTAVO_OFFLINE", "maybe"),
        ("OCTAVO_LOG", "loud"),
        ("OCTAVO_NUMERICS", "fastest"),
        ("OCTAVO_X", ""),
        ("OCTAVO_ISA", " , "),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_environment({name: value})


def test_variables_are_read_and_keys_are_not_shown() -> None:
    given = {"OCTAVO_ISA": "AVX2, avx512,", "OCTAVO_API_KEY": "a,b", "OCTAVO_THREADS": "3", "HOME": "/x"}
    found = read_environment(given)
    assert (found.isa, found.api_keys, found.threads) == (("avx2", "avx512"), ("a", "b"), 3)
    assert shown_variables(given)["OCTAVO_API_KEY"] == "(set, not shown)" and "HOME" not in shown_variables(given)
