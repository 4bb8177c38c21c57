"""What the case tables leave out: no rows at all, one and two threads, values that are not finite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.cases.common import FLOAT_FORMATS, GROUP_FORMATS, K_FORMATS, normal, stored

from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.weights import ReferenceWeights
from octavo.platforms.registry import PLATFORMS

if why := next(e for e in PLATFORMS if e.name == "portable").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.portable.ops import PortableOps
from octavo.platforms.portable.weights import PortableWeights

FORMATS = (*FLOAT_FORMATS, *GROUP_FORMATS, *K_FORMATS)


@pytest.mark.parametrize("form", FORMATS)
def test_no_rows_give_no_rows(form: str) -> None:
    weight = PortableWeights().linear([stored("w", normal("w", 40, 256), form)])
    assert PortableOps().linear(np.zeros((0, 256), np.float32), weight, activation="silu").shape == (0, 40)


@pytest.mark.parametrize("form", FORMATS)
def test_threads_do_not_show(form: str) -> None:
    weight = PortableWeights().linear([stored("w", normal("w", 200, 256), form)])
    x = normal("x", 5, 256)
    one = PortableOps().linear(x, weight)
    with ThreadPoolExecutor(3) as threads:
        assert PortableOps(None, threads, 3).linear(x, weight).tobytes() == one.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["bf16", "q8_0", "q4_k"])
def test_a_value_that_is_not_finite_stays_in_its_row(form: str, bad: float) -> None:
    raw = stored("w", normal("w", 33, 256), form)
    x = normal("x", 3, 256)
    want = ReferenceOps().linear(x, ReferenceWeights().linear([raw]))
    x[1, 40] = bad
    got = PortableOps().linear(x, PortableWeights().linear([raw]))
    assert not np.isfinite(got[1]).any()
    assert got[[0, 2]].tobytes() == want[[0, 2]].tobytes()


def test_norms_and_softcap_of_no_rows() -> None:
    ops, x = PortableOps(), np.zeros((0, 32), np.float32)
    assert ops.rms_norm(x, None, 1e-5, heads=2).shape == ops.layer_norm(x, None, None, 1e-5).shape == (0, 32)
    assert ops.softcap(x, 30.0).shape == (0, 32)
