"""Weights are taken as they are stored, refused by the tensor's name where they are damaged or cannot be stacked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cases.common import normal, stored

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.weights import ReferenceWeights
from octavo.platforms.registry import PLATFORMS

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base.products import product
from octavo.platforms.gpu.torch_base.runtime import to_host, torch
from octavo.platforms.gpu.torch_base.weights import TorchLinear, TorchWeights

CPU = torch.device("cpu")


def rows(weight: TorchLinear, x: np.ndarray) -> np.ndarray:
    return to_host(product(torch.from_numpy(x), weight))


@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
def test_floats_keep_their_type(form: str) -> None:
    raw = stored("w", normal("w", 5, 48), form)
    weight = TorchWeights(CPU).linear([raw, raw])
    assert weight.values.element_size() * weight.values.numel() == 2 * raw.data.nbytes  # type: ignore[union-attr]
    assert (weight.num_out, weight.num_in, weight.format) == (10, 48, form)


@pytest.mark.parametrize("form", ["q4_0", "q6_k", "w8a8", "bf16"])
@pytest.mark.parametrize("transpose", [False, True])
def test_floats_are_quantized_on_the_way_as_the_reference_does(form: str, transpose: bool) -> None:
    values, x = normal("w", 40, 256), normal("x", 3, 256)
    raw = stored("w", np.ascontiguousarray(values.T) if transpose else values)
    made = [kind.linear([raw], transpose=transpose, quantize=form) for kind in (TorchWeights(CPU), ReferenceWeights())]
    assert made[0].format == form and (made[0].num_out, made[0].num_in) == (40, 256)
    want = ReferenceOps().linear(x, made[1])  # type: ignore[arg-type]
    assert np.abs(rows(made[0], x) - want).max() <= 1e-6 * np.abs(want).max()  # type: ignore[arg-type]


def test_parts_with_and_without_zero_points_are_stacked() -> None:
    parts, x = [stored(f"w{z}", normal(f"w{z}", 24, 128), f"i4g64{z}") for z in ("", "+z", "")], normal("x", 4, 128)
    weight = TorchWeights(CPU).linear(parts)
    assert len(weight.integers) == 3
    want = ReferenceOps().linear(x, ReferenceWeights().linear(parts))
    assert np.abs(rows(weight, x) - want).max() <= 1e-6 * np.abs(want).max()


def test_a_file_that_is_mapped_read_only_is_taken() -> None:
    raw = stored("w", normal("w", 8, 32))
    frozen = raw.data.copy()
    frozen.flags.writeable = False
    assert TorchWeights(CPU).linear([replace(raw, data=frozen)]).num_out == 8


@pytest.mark.parametrize("form", ["f32", "bf16"])
def test_values_that_are_not_finite_are_refused_by_name(form: str) -> None:
    values = normal("w", 4, 32)
    values[2, 3] = np.inf
    with pytest.raises(ModelError, match=r"blk\.0: column 3 of row 2 holds inf"):
        TorchWeights(CPU).linear([stored("blk.0", values, form)])


def test_what_cannot_be_loaded_is_one_error() -> None:
    weights, four, eight = TorchWeights(CPU), *(stored("w", normal("w", 32, 32), form) for form in ("q4_0", "q8_0"))
    with pytest.raises(PlatformError, match="share one format; found q4_0, q8_0"):
        weights.linear([four, eight])
    with pytest.raises(PlatformError, match="format q4_0 cannot be transposed"):
        weights.linear([four], transpose=True)
    with pytest.raises(PlatformError, match="a bias of 32 values is needed; b has 31"):
        weights.linear([four], stored("b", normal("b", 31)))


def test_dry_weights_have_sizes_only() -> None:
    weight = TorchWeights(CPU, is_dry=True).linear([stored("w", normal("w", 6, 32), "q4_0")] * 2)
    assert (weight.num_out, weight.num_in, weight.integers) == (12, 32, ())
