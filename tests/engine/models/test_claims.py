"""A model description that claims absurd numbers is one typed error at once: no hang, no allocation, no arithmetic error."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.golden import tiny

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.errors import EngineDeadError, ModelError
from octavo.engine.messages import NO_TOKEN_ALLOWED, AddRequest
from octavo.engine.sampling_params import SamplingParams


def build(folder: Path, **options: Any) -> EngineCore:
    return build_core(EngineConfig(str(folder), platform="reference", num_threads=1, kv_bytes=1 << 22, **options))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_attention_heads", 0),
        ("max_position_embeddings", 10**12),
        ("rope_parameters", {"rope_type": "linear", "factor": 0, "rope_theta": 1e4}),
    ],
)
def test_absurd_numbers_in_config_are_refused_at_once(tmp_path: Path, key: str, value: object) -> None:
    folder = Path(tiny.write_safetensors("llama", tmp_path / "m"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    started = time.process_time()
    with pytest.raises(ModelError):
        build(folder)
    assert time.process_time() - started < 2.0


def test_a_long_context_beyond_the_pool_makes_no_table_of_its_length(tmp_path: Path) -> None:
    folder = Path(tiny.write_safetensors("llama", tmp_path / "m"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2**31 - 1}))
    core = build(folder)
    assert core.info.max_model_len == (core.info.num_blocks - 1) * core.info.block_tokens


def test_weights_that_overflow_blame_the_model_not_the_request(tmp_path: Path) -> None:
    folder = Path(tiny.write_safetensors("llama", tmp_path / "m"))
    path = next(folder.glob("*.safetensors"))
    save_file(
        {name: value * np.float32(1e38 if ".mlp." in name else 1) for name, value in load_file(path).items()}, path
    )
    with pytest.raises(EngineDeadError, match="no finite number"):
        build(folder)


def test_a_request_that_allows_no_token_is_blamed_and_the_next_one_is_served(tmp_path: Path) -> None:
    core = build(Path(tiny.write_safetensors("llama", tmp_path / "m")))
    nothing = SamplingParams(allowed_token_ids=[5], stop_token_ids=[5], min_tokens=2, max_tokens=4)
    core.add(AddRequest("bad", [1, 2], nothing))
    core.add(AddRequest("good", [1, 2], SamplingParams(max_tokens=1, ignore_eos=True)))
    outputs = [output for _ in range(4) for output in (core.step() if core.has_work else [])]
    assert [o.code for o in outputs if o.finish_reason == "error"] == [NO_TOKEN_ALLOWED]
    assert [o.finish_reason for o in outputs if o.request_id == "good"] == ["length"]
