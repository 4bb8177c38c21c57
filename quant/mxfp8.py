"""mxfp8: E4M3 codes with a power of two per 32 inputs; layout and arithmetic in `f8.py`."""

from __future__ import annotations

from functools import partial

from octavo.quant import f8
from octavo.quant.formats import BY_NAME

FORMAT = BY_NAME["mxfp8"]
ERROR_BOUND = f8.ERROR_BOUND
codes = partial(f8.codes, FORMAT)
quantize = partial(f8.quantize, FORMAT)
