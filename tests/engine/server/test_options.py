"""Options that commands share arrive at the engine; what they do not take is refused with what they do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from tests.golden import tiny

from octavo.engine.errors import ConfigError
from octavo.engine.server.cli import main
from octavo.engine.server.commands.options import _ENGINE, add_engine, add_model, engine_options


def test_every_engine_option_can_be_given() -> None:
    """Each name that reaches EngineConfig has an option, and what is given arrives there."""
    parser = argparse.ArgumentParser()
    add_model(parser)
    add_engine(parser)
    names = {action.dest for action in parser._actions}
    assert set(_ENGINE) <= names
    args = parser.parse_args(["m", "--itl-ms", "25.5", "--threads", "3", "--offline"])
    assert engine_options(args) == {"itl_ms": 25.5, "num_threads": 3, "is_offline": True}
    args = parser.parse_args(["m", "--quantization", "i4g128", "--quantize-head"])
    assert engine_options(args) == {"quantization": "i4g128", "quantize_head": True}
    args = parser.parse_args(["m", "--quantization", "none"])
    assert engine_options(args) == {"quantization": "none"}


def test_formats_and_levels_may_be_written_in_capitals_as_in_files_names() -> None:
    parser = argparse.ArgumentParser()
    add_model(parser)
    add_engine(parser)
    args = parser.parse_args(["m", "--quantization", "Q4_K", "--kv-dtype", "BF16", "--isa", "AVX2,avx512"])
    assert engine_options(args) == {"quantization": "q4_k", "kv_dtype": "bf16", "isa": ("avx2", "avx512")}
    assert engine_options(parser.parse_args(["m", "--kv-dtype", "FP8_E4M3"])) == {"kv_dtype": "fp8"}
    with pytest.raises(ConfigError, match=r"',' names no CPU level"):
        engine_options(parser.parse_args(["m", "--isa", ","]))


def test_a_kv_dtype_of_others_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_engine(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--kv-dtype", "fp8_e5m2"])
    assert "kv_dtype=fp8_e5m2: allowed are f32, bf16, f16, int8, fp8; take fp8 (E4M3)" in capsys.readouterr().err


def test_doctor_plans_for_weights_as_they_will_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny.write_safetensors("llama", tmp_path / "llama"))
    planned = []
    for options in ([], ["--quantization", "q4_0"], ["--quantization", "q4_0", "--quantize-head"]):
        assert main(["doctor", model, "--json", *options]) == 0
        planned.append(json.loads(capsys.readouterr().out)["memory"]["weights_bytes"])
    assert planned == sorted(planned, reverse=True) and len(set(planned)) == 3


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--device", "abacus"], 2, "unknown device or platform 'abacus'; known are auto, cpu, cuda, rocm, "),
        (["--device", "Reference:1"], 2, "unknown device 'reference:1'; only GPUs have numbers: cuda:0, rocm:0"),
        (["--device", "cuda:99"], 1, "cuda:99 was asked for and cannot be used: cuda: "),
    ],
)
def test_a_device_that_cannot_be_used_ends_the_command_with_one_line(
    words: list[str], status: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny.write_safetensors("llama", tmp_path / "llama"))
    assert main(["doctor", model, *words]) == status
    assert main(["doctor", *words, "--json"]) == 1
    out, err = capsys.readouterr()
    assert text in err and err.count("\n") == 1
    assert text in json.loads(out)["platform"]["problem"]


def test_the_device_of_the_command_line_is_what_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_PLATFORM", "abacus")
    model = str(tiny.write_safetensors("llama", tmp_path / "llama"))
    assert main(["doctor", model, "--device", "reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["platform"]["name"] == "reference"
    assert main(["doctor", "--json"]) == 1
    capsys.readouterr()


@pytest.mark.parametrize("command", ["serve", "generate", "chat", "doctor"])
def test_an_unknown_quantization_is_refused_with_those_there_are(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "m", "--quantization", "q9"]) == 2
    assert "q8_0" in capsys.readouterr().err
