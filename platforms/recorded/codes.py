"""Numbers by which native kernels know words of the contract (csrc_common/contract), and the forms of their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from octavo.platforms.types import Activation, Rows

ROWS_KIND: dict[Rows, int] = {"tokens": 0, "logits": 1, "sequences": 2}
ACTIVATIONS: dict[str, int] = {name: i for i, name in enumerate(get_args(Activation))}
KV_TYPES = {"f32": 0, "bf16": 1, "f16": 2, "int8": 3, "fp8": 4}
IDS_SOURCES = {"token_ids": 0, "positions": 1, "token_types": 2}


@dataclass(frozen=True)
class InputForm:
    """Rows as a product takes them: `parts` numbers of `element_bytes` per input, rows padded to `pad` inputs; a scale per
    `group` inputs (0: the row, -1: none), an int32 sum per `per_sum` (0: none, 1: the row)."""

    element_bytes: int
    pad: int
    group: int = -1
    per_sum: int = 0
    parts: int = 1


PREPARED = {
    "prepare_bf16": InputForm(2, 32), "prepare_i8g32": InputForm(1, 32, 32, 32), "prepare_i8g64": InputForm(1, 64, 64, 64),
    "prepare_i8g128": InputForm(1, 128, 128, 128), "prepare_i8g256": InputForm(1, 256, 256, 16),
    "prepare_i8row": InputForm(1, 64, 0, 1), "prepare_f16row": InputForm(2, 128, 0),
    "prepare_f16pair": InputForm(2, 128, 0, parts=2), "prepare_f8row": InputForm(1, 128, 0),
    "prepare_f8g128": InputForm(1, 128, 128), "prepare_f8g32": InputForm(1, 128, 32),
}  # fmt: skip
POOL_MODES = {"cls": 0, "last": 1, "mean": 2}
