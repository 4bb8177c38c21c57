"""All 256 codes of small floats, as torch has them, are those of `quant`."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.platforms.registry import PLATFORMS

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base.functions import quantize_e4m3
from octavo.platforms.gpu.torch_base.runtime import torch
from octavo.quant.fp8 import DIALECTS, E4M3FN, E8M0

TABLES = {f"float8_{name}": dialect.table for name, dialect in DIALECTS.items()} | {"float8_e8m0fnu": E8M0}


@pytest.mark.parametrize("name", TABLES)
def test_every_code_is_the_number_that_torch_reads(name: str) -> None:
    want = TABLES[name]
    got = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("exponent", [-100, -5, 0, 100])
def test_every_number_of_e4m3_is_quantized_to_its_code(exponent: int) -> None:
    """Also what lies halfway between two, which goes to the even one; -0 is stored as 0."""
    numbers = np.unique(E4M3FN.table[np.isfinite(E4M3FN.table)])
    given = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).astype(np.float32)
    codes, scale = quantize_e4m3(torch.from_numpy(np.ldexp(given, exponent)[None]))
    want = E4M3FN.encode(given)
    assert scale.item() == 2.0**exponent
    assert np.array_equal(codes.numpy()[0], np.where(want == 0x80, 0, want))
