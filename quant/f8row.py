"""f8row: E4M3 codes with one scale per row; layout and arithmetic in `f8.py`."""

from __future__ import annotations

from functools import partial

from octavo.quant import f8
from octavo.quant.formats import BY_NAME

FORMAT = BY_NAME["f8row"]
ERROR_BOUND = f8.ERROR_BOUND
codes = partial(f8.codes, FORMAT)
quantize = partial(f8.quantize, FORMAT)
