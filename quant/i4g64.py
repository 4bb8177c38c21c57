"""i4g64: 4-bit codes in groups of 64 inputs; layout and arithmetic in `i4.py`."""

from __future__ import annotations

from functools import partial

from octavo.quant import i4
from octavo.quant.formats import BY_NAME

FORMAT = BY_NAME["i4g64"]
ERROR_BOUND = i4.ERROR_BOUND
codes = partial(i4.codes, FORMAT)
quantize = partial(i4.quantize, FORMAT)
