"""The reference as a platform: the two halves of a forward pass, refusals, weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases.common import batch_of, normal, one_layer, stored

from octavo.engine.errors import PlatformError
from octavo.platforms.platform import Capacity
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.platform import OPS, ReferencePlatform
from octavo.platforms.reference.weights import ReferenceWeights

VOCAB, WIDTH = 20, 16
CAPACITY = Capacity(max_tokens=8, max_seqs=2, max_logits=8, max_len=64, num_pages=5)


class TinyModel:
    """Embedding, one attention, head."""

    vocab_size = VOCAB

    def __init__(self) -> None:
        weights = ReferenceWeights()
        self.table = weights.embedding(stored("table", normal("table", VOCAB, WIDTH)))
        self.head = weights.linear([stored("head", normal("head", VOCAB, WIDTH))])

    def kv_spec(self, dtype: str, block_tokens: int) -> Any:
        return one_layer(dtype, 1, WIDTH, block_tokens=block_tokens)

    def forward(self, ops: Any, batch: object) -> Any:
        x = ops.embedding(self.table)
        ops.kv_append(x, x, layer=0)
        x = ops.paged_attention(x, layer=0, heads=1, scale=0.25)
        return ops.lm_head(ops.gather_rows(x), self.head)


def step() -> tuple[TinyModel, Any, Any]:
    model = TinyModel()
    spec = model.kv_spec("f32", 32)
    ids = np.array([3, 1, 4, 1, 5], np.int32)
    return model, spec, batch_of([(0, 3), (0, 2)], spec, token_ids=ids)


def test_head_gives_the_rows_of_a_whole_pass() -> None:
    model, spec, batch = step()
    executable = ReferencePlatform().build(model, spec, CAPACITY)
    executable.run(batch)
    got = executable.head(np.array([4, 0], np.int32))
    whole = ReferenceOps(ReferencePlatform().build(model, spec, CAPACITY).pages)
    whole.begin(batch)
    assert np.array_equal(got, np.asarray(model.forward(whole, batch))[[4, 0]])
    assert executable.head(np.zeros(0, np.int32)).shape == (0, VOCAB)


def test_misuse_is_refused_in_one_line() -> None:
    model, spec, batch = step()
    executable = ReferencePlatform().build(model, spec, CAPACITY)
    with pytest.raises(PlatformError, match="before any step"):
        executable.head(np.array([0], np.int32))
    small = ReferencePlatform().build(model, spec, replace(CAPACITY, max_tokens=4))
    with pytest.raises(PlatformError, match="5 tokens was given; this executable takes at most 4"):
        small.run(batch)
    with pytest.raises(PlatformError, match="call begin"):
        ReferenceOps().gather_rows(np.zeros((1, 1), np.float32))
    with pytest.raises(PlatformError, match="without one"):
        ReferenceOps().kv_append(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32), layer=0)
    with pytest.raises(PlatformError, match="rows of 3 values meet a weight of 16 inputs"):
        ReferenceOps().linear(np.zeros((1, 3), np.float32), model.head)


def test_weights_name_the_tensor_they_refuse() -> None:
    weights = ReferenceWeights()
    f32, q8 = stored("a", normal("a", 4, 32)), stored("b", normal("b", 4, 32), "q8_0")
    with pytest.raises(PlatformError, match="a: stacked tensors share one format; found f32, q8_0"):
        weights.linear([f32, q8])
    with pytest.raises(PlatformError, match="b: format q8_0 cannot be transposed"):
        weights.linear([q8], transpose=True)
    with pytest.raises(PlatformError, match="a bias of 4 values is needed; bias has 3"):
        weights.linear([f32], stored("bias", normal("bias", 3)))
    with pytest.raises(PlatformError, match="c: format i32 has no codes"):
        weights.linear([replace(f32, name="c", format="i32")])


def test_several_biases_stack_with_their_tensors() -> None:
    weights = ReferenceWeights()
    tensors = [stored(name, normal(name, 2, 8)) for name in "ab"]
    biases = [stored(f"bias_{name}", normal(f"bias_{name}", 2)) for name in "ab"]
    both = weights.linear(tensors, biases)
    apart = [weights.linear([t], b) for t, b in zip(tensors, biases, strict=True)]
    x = normal("x", 3, 8)
    ops = ReferenceOps()
    assert np.array_equal(ops.linear(x, both), np.concatenate([ops.linear(x, w) for w in apart], axis=1))


def test_every_op_of_the_contract_has_a_variant() -> None:
    from octavo.platforms.ops import Ops

    public = {name for name in vars(Ops) if not name.startswith("_")} - {"split", "segment"}
    assert public <= set(OPS)
    assert {variant.op for variant in ReferencePlatform().variants()} == set(OPS)
    assert all(hasattr(ReferenceOps, name) for name in public)
