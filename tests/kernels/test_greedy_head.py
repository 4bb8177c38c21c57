"""greedy_head at every runnable level: the id that greedy sampling takes from the logits that the same level gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases.common import normal, stored
from tests.cases.sample_rows import plain
from tests.kernels.kv_case import eager, levels, lowest, module_of, variants

from octavo.platforms.cpu.weights import PackedLinear, PackedWeights
from octavo.platforms.reference.sample import sample
from octavo.platforms.types import RawTensor

LEVELS = levels("greedy_head")
VOCABULARIES = (1, 2, 15, 16, 17, 31, 33, 300, 2500, 9000)


def weights(ops: Any, raw: RawTensor) -> PackedLinear:
    return PackedWeights(ops.native, ops.team).linear([raw])


def expected(logits: np.ndarray) -> list[int]:
    """What greedy sampling takes."""
    return sample(logits, plain(len(logits), temperature=0.0)).ids.tolist()


def same(ops: Any, x: np.ndarray, raw: RawTensor, **how: float) -> list[int]:
    """The ids, found equal to those of the logits."""
    weight = weights(ops, raw)
    found = ops.greedy_head(x, weight, **how)
    assert found.shape == (len(x), 1) and found.dtype == np.int32
    assert found[:, 0].tolist() == expected(ops.lm_head(x, weight, **how))
    return found[:, 0].tolist()


def identity(vocab: int, *copies: tuple[int, int]) -> RawTensor:
    """A head whose logits are its inputs, those of token b also at token a for every pair."""
    rows = np.eye(vocab, dtype=np.float32)
    for a, b in copies:
        rows[a] = rows[b]
    return stored("head", rows, "f32")


@pytest.mark.parametrize(("name", "level"), variants("greedy_head"))
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ids_are_those_of_the_logits_at_every_size(name: str, level: str, threads: int) -> None:
    ops = eager(level, threads=threads)
    for vocab in VOCABULARIES:
        raw = stored("head", normal(f"{vocab}", vocab, 64), "bf16")
        for rows in (1, 3, 17):
            same(ops, normal(f"{rows}", rows, 64), raw)
    assert ops.last_variant("greedy_head") == name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_lowest_of_equal_tokens_wins_wherever_they_lie(level: str, threads: int) -> None:
    """Equal logits in one vector, one panel, one part, panels computed one after another, and parts of different threads."""
    vocab, ops = 1200, eager(level, threads=threads)
    for low, high in ((0, 1), (3, 14), (15, 16), (17, 900), (0, vocab - 1), (600, 601)):
        for rows in (2, 70):
            x = np.zeros((rows, vocab), np.float32)
            x[:, low] = 5
            assert same(ops, x, identity(vocab, (high, low))) == [low] * rows
    assert same(ops, np.zeros((3, vocab), np.float32), identity(vocab)) == [0, 0, 0]


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_that_ends_in_many_parts_is_the_row_alone(level: str) -> None:
    """Every place of the greatest token: none is passed over at a border."""
    vocab, ops = 333, eager(level, threads=2)
    assert same(ops, np.eye(vocab, dtype=np.float32), identity(vocab)) == list(range(vocab))


@pytest.mark.parametrize("level", LEVELS)
def test_softcap_makes_equals_of_which_the_lowest_wins(level: str) -> None:
    x = np.array([[3.0, 70.0, 90.0, 80.0], [3.0, 2.0, -90.0, 1.0]], np.float32)
    ops = eager(level)
    assert same(ops, x, identity(4), softcap=2.0) == [1, 0]
    assert same(ops, x, identity(4)) == [2, 0]
    same(ops, normal("capped", 5, 64, scale=9.0), stored("head", normal("w", 700, 64), "f32"), scale=3.0, softcap=1.5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_no_number_is_no_candidate(level: str, threads: int) -> None:
    raw = stored("head", np.array([[1.0], [-1.0], [2.0]] * 50, np.float32), "f32")
    x = np.array([[np.nan], [np.inf], [-np.inf], [3e38], [-3e38], [1.0]], np.float32)
    found = same(eager(level, threads=threads), x, raw)
    assert found == [-1, 0, 1, 2, 1, 2]  # 3e38 * 2 overflows: the largest float32, above 3e38


@pytest.mark.parametrize("level", LEVELS)
def test_the_bias_of_a_head_counts(level: str) -> None:
    ops = eager(level, threads=2)
    bias = np.zeros(500, np.float32)
    bias[[40, 77]] = 9
    raw = RawTensor("bias", "f32", (500,), bias.view(np.uint8))
    weight = PackedWeights(ops.native, ops.team).linear([stored("head", normal("w", 500, 32), "f32")], raw)
    assert set(ops.greedy_head(np.zeros((2, 32), np.float32), weight)[:, 0].tolist()) == {40}


def test_a_kernel_of_a_level_this_processor_lacks_is_refused_by_name() -> None:
    module = module_of(lowest())
    program = module.Program()
    lacking = [name for _, name, _, required, _ in module.kernels() if required & ~module.available_features()]
    if not lacking:
        pytest.skip("this processor has every level")
    name, head = lacking[0], f"greedy_head__{lowest()}"
    fields = {field: 0 for op, _, _, _, names in module.kernels() if op == "greedy_head" for field in names}
    fields |= {"linear.rows": (3, 1), "few": name, "many": f"linear_f32__{lowest()}"}
    with pytest.raises(ValueError, match=rf"{name}: this processor lacks its features"):
        program.add([(0, head)], (3, 1), fields)
