"""f8g128: E4M3 codes in groups of 128 inputs; layout and arithmetic in `f8.py`."""

from __future__ import annotations

from functools import partial

from octavo.quant import f8
from octavo.quant.formats import BY_NAME

FORMAT = BY_NAME["f8g128"]
ERROR_BOUND = f8.ERROR_BOUND
codes = partial(f8.codes, FORMAT)
quantize = partial(f8.quantize, FORMAT)
