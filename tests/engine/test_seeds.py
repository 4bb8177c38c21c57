"""A seed means the same tokens whoever the neighbours are, seeded or not (vllm-project/vllm#51226)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine import bits
from tests.golden import tiny

from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    return tiny.write_safetensors("llama", tmp_path_factory.mktemp("seeds"))


def answers(model: Path, requests: list[tuple[str, int | None]]) -> dict[str, list[int]]:
    """Token ids by request id of requests (id, seed) run at once."""
    core = bits.make_core(model, has_prefix_cache=False)
    got: dict[str, list[int]] = {}
    for name, seed in requests:
        prompt = bits.prompts([20], first_seed=len(name) * 7)[len(name) * 7]
        core.add(AddRequest(name, prompt, SamplingParams(temperature=0.8, seed=seed, max_tokens=12, ignore_eos=True)))
        got[name] = []
    while core.has_work:
        for output in core.step():
            got[output.request_id] += output.tokens
    return got


def test_a_seeded_request_is_repeatable_in_any_company(model: Path) -> None:
    alone = answers(model, [("A", 42)])["A"]
    companies: list[list[tuple[str, int | None]]] = [
        [("A", 42), ("BB", None)],
        [("BB", None), ("A", 42)],
        [("A", 42), ("BB", 7)],
        [("BB", 7), ("A", 42)],
        [(f"N{i:07d}", None if i % 2 else i) for i in range(8)] + [("A", 42)],
    ]
    for company in companies:
        assert answers(model, company)["A"] == alone


def test_other_seeds_and_unseeded_requests_differ(model: Path) -> None:
    runs = [answers(model, [("A", seed)])["A"] for seed in (42, 43, None, None)]
    assert len({tuple(run) for run in runs}) == 4
