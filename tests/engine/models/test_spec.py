"""Descriptions of decoders: sound sizes, and the paged memory that follows from them."""

from __future__ import annotations

import dataclasses

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.models.spec import DecoderSpec, LayerSpec, group_size
from octavo.platforms.types import GroupKind, Rope


def spec(windows: list[int]) -> DecoderSpec:
    return DecoderSpec(
        family="test",
        hidden=8,
        heads=2,
        kv_heads=1,
        head_dim=4,
        ffn=8,
        vocab=10,
        max_positions=100,
        layers=tuple(LayerSpec(None, 0.5, window) for window in windows),
    )


def test_full_layers_make_one_group() -> None:
    kv = spec([0, 0, 0]).kv_spec("bf16", 16)
    assert [(group.kind, group.layers, group.window) for group in kv.groups] == [(GroupKind.FULL, (0, 1, 2), 0)]
    assert (kv.num_kv_heads, kv.head_dim, kv.dtype, kv.block_tokens) == (1, 4, "bf16", 16)


def test_gemma3_layers_share_pages_of_equal_layer_counts() -> None:
    kv = spec([0 if (i + 1) % 6 == 0 else 32 for i in range(18)]).kv_spec("f32")
    assert kv.layers_per_group == 3
    assert [group.kind for group in kv.groups] == [GroupKind.FULL] + [GroupKind.SLIDING] * 5
    placed = sorted(layer for group in kv.groups for layer in group.layers)
    assert placed == list(range(18))
    assert kv.place(5) == (0, 0) and kv.place(17) == (0, 2)


@pytest.mark.parametrize(
    ("counts", "size"), [([26], 26), ([20, 30], 10), ([3, 15], 3), ([5, 29], 5), ([8, 40], 8), ([1, 1], 1)]
)
def test_group_size_wastes_little_and_keeps_groups_few(counts: list[int], size: int) -> None:
    assert group_size(counts) == size


def test_an_unknown_kv_type_is_refused() -> None:
    with pytest.raises(ModelError, match="'int4'; allowed are f32, bf16, f16, int8, fp8"):
        spec([0]).kv_spec("int4")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"heads": 3, "kv_heads": 2}, "3 heads cannot share 2"),
        ({"layers": ()}, "no layers"),
        ({"vocab": 0}, "vocab is 0"),
        ({"layers": (LayerSpec(Rope((1.0,) * 3, 6), 0.5),)}, "rotates 6 of 4 values"),
        ({"layers": (LayerSpec(Rope((1.0,) * 2, 3), 0.5),)}, "rotates 3 of 4 values per head; allowed are even"),
        ({"norm_eps": -1e-6}, "norm_eps is -1e-06; it must be 0 or more"),
    ],
)
def test_unsound_sizes_are_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        dataclasses.replace(spec([0]), **change)  # type: ignore[arg-type]
