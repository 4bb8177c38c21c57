"""Steps that need only the best token of each row take it without logits, and it is the token that logits give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine import bits
from tests.engine.fake_executable import make_core
from tests.golden import tiny

from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams

LENGTHS = [1, 5, 31, 33, 70, 2, 9, 12, 40, 3]
MODELS = ["llama", "gemma2", "llama:q4_1", "llama:q8_0", "llama:bf16"]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, dense or quantized; Gemma 2 caps its logits."""
    case, _, form = request.param.partition(":")
    folder = tmp_path_factory.mktemp(request.param.replace(":", "-"))
    return bits.write_quantized(case, form, folder / "m.gguf") if form else tiny.write_safetensors(case, folder)


class Calls:
    """How often each ending of the head ran."""

    def __init__(self, core: EngineCore) -> None:
        self.greedy = self.head = 0
        executable: Any = core.runner.executable
        greedy, head = executable.greedy, executable.head

        def count_greedy(rows: Any) -> Any:
            self.greedy += 1
            return greedy(rows)

        def count_head(rows: Any) -> Any:
            self.head += 1
            return head(rows)

        executable.greedy, executable.head = count_greedy, count_head


def answers(model: Path, *, has_logits: bool, **options: Any) -> dict[int, list[int]]:
    """Greedy tokens of all prompts at once."""
    core = bits.make_core(model, has_prefix_cache=False, **options)
    calls = Calls(core)
    if has_logits:
        core.runner._rows.are_greedy = lambda slots: False  # type: ignore[method-assign]
    tokens = bits.run(core, bits.prompts(LENGTHS), num_tokens=12, temperature=0.0).tokens
    assert (calls.head == 0, calls.greedy == 0) == (not has_logits, has_logits)
    return tokens


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_gets_the_tokens_of_its_logits(model: Path, threads: int) -> None:
    expected = answers(model, has_logits=True, num_threads=1)
    assert len({token for tokens in expected.values() for token in tokens}) > 3
    assert answers(model, has_logits=False, num_threads=threads) == expected


def test_the_reference_platform_gives_the_same_tokens(model: Path) -> None:
    assert answers(model, has_logits=False, platform="reference") == answers(model, has_logits=True, num_threads=2)


@pytest.mark.parametrize(
    ("params", "is_greedy"),
    [
        ({}, True),
        ({"top_k": 5, "top_p": 0.5, "min_p": 0.2, "seed": 3}, True),  # filters and seeds mean nothing to the best token
        ({"temperature": 0.7}, False),
        ({"logprobs": 0}, False),
        ({"presence_penalty": 0.5}, False),
        ({"frequency_penalty": 0.5}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"logit_bias": {4: 1.0}}, False),
        ({"allowed_token_ids": [3, 4]}, False),
        ({"min_tokens": 2}, False),
        ({"bad_words": [[5]]}, False),
    ],
    ids=str,
)
def test_only_rows_that_ask_for_nothing_else_go_without_logits(params: dict[str, Any], is_greedy: bool) -> None:
    core = make_core()
    calls = Calls(core)
    given = {"temperature": 0.0, "max_tokens": 4, "ignore_eos": True, **params}
    core.add(AddRequest("r", [2, 3], SamplingParams(**given)))
    while core.has_work:
        core.step()
    assert (calls.greedy, calls.head) == ((4, 0) if is_greedy else (0, 4))


def test_a_step_of_mixed_rows_takes_logits_for_all() -> None:
    core = make_core()
    calls = Calls(core)
    core.add(AddRequest("greedy", [2, 3], SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)))
    core.add(AddRequest("drawn", [4, 5], SamplingParams(temperature=1.0, max_tokens=3, ignore_eos=True)))
    while core.has_work:
        core.step()
    assert (calls.greedy, calls.head) == (3, 3)


def test_a_slot_does_not_stay_greedy_for_its_next_owner() -> None:
    core = make_core(max_seqs=1)
    calls = Calls(core)
    for temperature in (0.0, 1.0, 0.0):
        core.add(AddRequest("r", [2, 3], SamplingParams(temperature=temperature, max_tokens=2, ignore_eos=True)))
        while core.has_work:
            core.step()
    assert (calls.greedy, calls.head) == (4, 2)


def test_all_rows_of_a_step_are_taken_at_once_whatever_logits_would_take() -> None:
    core = make_core(max_seqs=8, max_tokens=32)  # max_logits is 3
    calls = Calls(core)
    for i in range(8):
        core.add(AddRequest(f"r{i}", [2 + i, 3], SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)))
    while core.has_work:
        core.step()
    assert calls.greedy == 2
