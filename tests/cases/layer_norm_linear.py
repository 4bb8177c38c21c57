"""Cases of a product of rows of a layer norm: two ops, which a program may run as one launch and a product."""

from __future__ import annotations

from tests.cases.norm_linear import Case, inputs, naive, run

__all__ = ["CASES", "inputs", "naive", "run"]
FORMS = ("f32", "f16", "bf16", "w8a8", "i4g32", "i4g64", "i4g128")
CASES = (
    *(Case(f"{form}_200", form, 3, 200, is_layer=True) for form in FORMS),
    *(Case(f"{form}_768", form, 2, 768, is_layer=True) for form in ("q4_0", "q4_k")),
    Case("bf16_rows_19", "bf16", 19, 96, is_layer=True),
    Case("bf16_plain", "bf16", 2, 96, is_weighted=False, is_layer=True),
    Case("bf16_long", "bf16", 2, 8232, is_layer=True),
)
