"""Cells ask what they say, are worth what was answered, and their limits are the slower of reading and multiplying."""

from __future__ import annotations

import pytest
from benchmarks.cells import SHARED_PREFIX, SHARED_REQUESTS, USUAL, Lengths, Prompts, parse_cell
from benchmarks.shapes import SHAPES, Shape

TINY = Shape("tiny", "", "llama", 64, 128, 2, 4, 2, 16, 1000, 1e4, 1e-5)


@pytest.mark.parametrize("text", ["decode", "decode.", "decode.0", "decode.x", "prefill.1e3", "shared.2", "load", ""])
def test_unknown_cells_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cell"):
        parse_cell(text, Lengths())


def test_commands_have_the_sizes_of_the_cell() -> None:
    lengths = Lengths(10, 5, 7, 3)
    asked = {name: parse_cell(name, lengths).command(Prompts()) for name in USUAL if name != "start"}
    shapes = {
        name: ({len(prompt) for prompt in one["prompts"]}, len(one["prompts"]), one["new"])
        for name, one in asked.items()
    }
    assert shapes["prefill.512"] == ({512}, 1, 1)
    assert shapes["decode.16"] == ({10}, 16, 5)
    assert shapes["shared"] == ({SHARED_PREFIX + 7}, SHARED_REQUESTS, 3)
    prefixes = {tuple(prompt[:SHARED_PREFIX]) for prompt in asked["shared"]["prompts"]}
    rests = {tuple(prompt[SHARED_PREFIX:]) for prompt in asked["shared"]["prompts"]}
    assert (len(prefixes), len(rests)) == (1, SHARED_REQUESTS)


def test_prompts_never_repeat() -> None:
    prompts = Prompts()
    made = [tuple(prompts(16)) for _ in range(50)]
    assert len(set(made)) == 50 and min(map(min, made)) >= 1000


def test_values_are_rates_or_seconds() -> None:
    answer = {"seconds": 4.0, "window_seconds": 2.0, "window_tokens": 30}
    lengths = Lengths()
    values = {name: parse_cell(name, lengths).value(answer) for name in ("prefill.512", "decode.4", "shared")}
    assert values == {"prefill.512": 128.0, "decode.4": 15.0, "shared": 4.0}
    assert [parse_cell(name, lengths).better for name in ("prefill.1", "decode.1", "shared", "start")] == [
        "higher", "higher", "lower", "lower",
    ]  # fmt: skip


def test_decode_without_a_common_step_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no step in which all 4"):
        parse_cell("decode.4", Lengths()).value({"seconds": 1.0})


def test_slow_memory_limits_one_request_and_slow_arithmetic_many() -> None:
    lengths = Lengths(0, 2)
    one, many = (parse_cell(f"decode.{n}", lengths) for n in (1, 1000))
    step = TINY.step_bytes(1e6, 1, 1)
    assert one.limit(TINY, 1e6, step, 1e18) == pytest.approx(1.0)
    assert one.limit(TINY, 1e6, step * 3, 1e18) == pytest.approx(3.0)
    ops = 2.0 * (TINY.layer_params + 1000 * 64) + 4.0 * 2 * 4 * 16
    assert many.limit(TINY, 1e6, 1e18, ops) == pytest.approx(1.0)
    prefill = parse_cell("prefill.100", lengths)
    assert prefill.limit(TINY, 1e6, 1e18, TINY.prefill_ops(100)) == pytest.approx(100.0)
    assert prefill.limit(TINY, 1e6, 1e5, 1e18) == pytest.approx(10.0)


def test_limits_are_not_guessed() -> None:
    assert parse_cell("decode.1", Lengths()).limit(TINY, 1e6, 0.0, 1e9) is None
    assert parse_cell("shared", Lengths()).limit(TINY, 1e6, 1e9, 1e9) is None


def test_work_of_known_shapes() -> None:
    llama = SHAPES["llama1b"]
    assert llama.layer_params + llama.vocab * llama.hidden == pytest.approx(1.236e9, rel=1e-3)
    assert llama.kv_token_bytes == 32768
    assert llama.prefill_ops(1) == 2 * (llama.layer_params + llama.vocab * llama.hidden) + 4 * 16 * 2048
