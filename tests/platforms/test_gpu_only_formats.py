"""Formats that only GPUs compute with: other platforms refuse them by name, and never take their codes for integers."""

from __future__ import annotations

import pytest
from tests.cases.common import normal, stored
from tests.platforms.cells import Cell, cells

from octavo.engine.errors import PlatformError
from octavo.quant.formats import FORMATS

OTHERS = [cell for cell in cells() if not cell.reason and cell.platform not in ("reference", "gpu")]


@pytest.mark.parametrize("form", [form.name for form in FORMATS if form.is_gpu_only])
@pytest.mark.parametrize("cell", OTHERS, ids=lambda cell: cell.name)
def test_a_platform_without_kernels_refuses_the_format(form: str, cell: Cell) -> None:
    weights = cell.weights()
    with pytest.raises(PlatformError, match=rf"some\.weight: no \w+ kernel runs format {form}"):
        weights.linear([stored("some.weight", normal("refused", 16, 64), form)])
