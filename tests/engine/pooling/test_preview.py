"""The plan that `octavo doctor` shows is of the engine that would run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden import tiny_pairs, tiny_rankers, tiny_sentences, tiny_tokens

from octavo.engine.config import EngineConfig
from octavo.engine.pooling.build import build_pooling_core
from octavo.engine.pooling.preview import preview_of_vectors
from octavo.engine.server.cli import main
from octavo.platforms.registry import PLATFORMS

NAMES = [entry.name for entry in PLATFORMS if not entry.probe()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["dense", "joined", "labels", "splade", "pylate", "bge-m3", "card"])
def test_plan_is_the_engines(kind: str, name: str, tmp_path: Path) -> None:
    write: Any = tiny_pairs.write_case if kind == "labels" else tiny_sentences.write_case
    write = {"splade": tiny_tokens.write_case, "pylate": tiny_tokens.write_case, "card": tiny_rankers.write_case}.get(
        kind, write
    )
    folder = tiny_tokens.write_joined(tmp_path, ".pt") if kind == "bge-m3" else write(kind, tmp_path)
    config = EngineConfig(str(folder), platform=name, num_threads=1, max_batch_tokens=48, max_num_seqs=4)
    plan, core = preview_of_vectors(config), build_pooling_core(config)
    assert (plan.weights_bytes, plan.max_tokens) == (core.info.weights_bytes, core.info.max_model_len)
    assert plan.scratch_bytes > 0 or name == "reference"
    assert (plan.max_batch_tokens, plan.kv_bytes) == (max(48, plan.max_tokens), 0)
    larger = preview_of_vectors(EngineConfig(str(folder), platform=name, num_threads=1, max_batch_tokens=4096))
    assert larger.scratch_bytes >= plan.scratch_bytes


def test_doctor_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_sentences.write_case("mean", tmp_path)
    assert main(["doctor", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"]["weights_bytes"] > 0 and "texts of 64 tokens" in found["memory"]["plan"]
    assert "step_costs" not in found
