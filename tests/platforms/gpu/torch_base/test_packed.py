"""Bit planes give back every code, and weights on the device take little more than their bytes in the file."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases.common import APART_FORMATS, GROUP_FORMATS, K_FORMATS, normal, stored

from octavo.platforms.registry import PLATFORMS
from octavo.quant.formats import format_named

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base.packed import pack
from octavo.platforms.gpu.torch_base.runtime import to_host, torch
from octavo.platforms.gpu.torch_base.weights import TorchWeights

CPU = torch.device("cpu")
ALL = slice(None)


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_every_code_comes_back(bits: int, is_signed: bool) -> None:
    low = 1 << (bits - 1) if is_signed else 0
    codes = (np.random.default_rng(bits).integers(0, 1 << bits, (3, 5, 32)) - low).astype(
        np.int8 if is_signed else np.uint8
    )
    packed = pack(torch.from_numpy(codes), bits, low if bits < 8 else 0)
    assert np.array_equal(to_host(packed.unpack(ALL, ALL)), codes)
    assert np.array_equal(to_host(packed.unpack(slice(1, 3), slice(2, 4))), codes[1:3, 2:4])
    assert packed.num_bytes * 8 == codes.size * bits


@pytest.mark.parametrize("form", [*GROUP_FORMATS, *K_FORMATS, *APART_FORMATS])
def test_memory_stays_near_the_files_size(form: str) -> None:
    raw = stored("w", normal("w", 64, 512), form)
    (made,) = TorchWeights(CPU).linear([raw]).integers
    in_file = raw.data.nbytes + sum(part.data.nbytes for part in (raw.scales, raw.zeros) if part is not None)
    assert in_file <= made.num_bytes <= 1.04 * in_file, f"{made.num_bytes} bytes for {in_file}"
    assert made.format is format_named(raw.format)
