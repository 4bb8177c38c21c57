"""Integer sums are exact at the worst that a format can hold, however they are made; runs of outputs and groups do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases.common import APART_FORMATS, GROUP_FORMATS, K_FORMATS, normal, stored

from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.weights import ReferenceWeights
from octavo.platforms.registry import PLATFORMS
from octavo.quant.formats import format_named

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base import products, weights
from octavo.platforms.gpu.torch_base.runtime import to_host, torch

CPU = torch.device("cpu")
#: format -> (least and greatest code with its zero point off, the sub-scale of the largest magnitude)
EXTREMES = {
    "q2_k": (0, 3, 15),
    "q3_k": (-4, 3, -32),
    "q4_k": (0, 15, 63),
    "q5_k": (0, 31, 63),
    "q6_k": (-32, 31, -128),
    "w8a8": (-128, 127, 1),
}


@pytest.mark.parametrize("form", EXTREMES)
def test_a_sum_as_large_as_the_format_allows_is_exact(form: str) -> None:
    """All products of one sign, and a last one that makes the sum odd: nothing may be lost below 2^24 of a partial sum."""
    low, high, sub = EXTREMES[form]
    width = format_named(form).block_size if form != "w8a8" else 1 << 15
    codes = np.full((2, width), low * sub if abs(low) > high else high * sub, np.int64)
    codes[1, 0] = sub
    q = np.full(width, 127, np.int64)
    q[-1] = 126
    found = products._exact_sum(
        torch.from_numpy(q[None, None].astype(np.float32)),
        torch.from_numpy(codes[None].astype(np.float32)),
        products.DEPTHS[form],
    )
    assert np.array_equal(to_host(found)[0, 0], (codes @ q).astype(np.float32))
    assert products.DEPTHS[form] * 127 * int(np.abs(codes).max()) < 1 << 24


@pytest.mark.parametrize("has_int8", [False, True])
def test_w8a8_is_the_references_bits_with_and_without_int8_products(
    has_int8: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_int8 and not products.multiplies_int8(CPU):
        pytest.skip("torch's int8 product is not exact here")
    monkeypatch.setattr(products, "multiplies_int8", lambda device: has_int8)
    raw, x = stored("w", normal("w", 37, 2100), "w8a8"), normal("x", 5, 2100)
    got = products.product(torch.from_numpy(x), weights.TorchWeights(CPU).linear([raw]))
    want = ReferenceOps().linear(x, ReferenceWeights().linear([raw]))
    assert to_host(got).tobytes() == want.tobytes()


def test_an_int8_product_that_saturates_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: (a.int() @ b.int()).clamp(max=32767))
    assert not products.multiplies_int8.__wrapped__(CPU)


@pytest.mark.parametrize("form", [*GROUP_FORMATS, *K_FORMATS, *APART_FORMATS, "f16", "bf16"])
def test_runs_of_outputs_and_groups_do_not_show(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, x = stored("w", normal("w", 50, 768), form), normal("x", 9, 768)

    def run() -> np.ndarray:
        return to_host(products.product(torch.from_numpy(x), weights.TorchWeights(CPU).linear([raw, raw])))

    whole = run()
    monkeypatch.setattr(products, "WORK_ELEMENTS", 1 << 11)
    monkeypatch.setattr(weights, "_RUN_ELEMENTS", 7 * 768)
    assert np.abs(run() - whole).max() <= 1e-6 * np.abs(whole).max()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["bf16", "q8_0", "q4_k", "w8a8", "i4g64"])
def test_a_value_that_is_not_finite_stays_in_its_row(form: str, bad: float) -> None:
    x = normal("x", 3, 256)
    weight = weights.TorchWeights(CPU).linear([stored("w", normal("w", 33, 256), form)])

    def run() -> Any:
        return to_host(products.product(torch.from_numpy(x), weight))

    whole = run()
    x[1, 40] = bad
    got = run()
    assert not np.isfinite(got[1]).any()
    assert got[[0, 2]].tobytes() == whole[[0, 2]].tobytes()


@pytest.mark.parametrize("form", ["f32", "f16", "bf16", "q4_1", "q8_0", "q6_k", "w8a8", "i4g32"])
def test_no_rows_give_no_rows(form: str) -> None:
    weight = weights.TorchWeights(CPU).linear([stored("w", normal("w", 40, 256), form)])
    assert products.product(torch.zeros((0, 256)), weight).shape == (0, 40)
