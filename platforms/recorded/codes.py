"""Numbers by which native kernels know words of the contract (csrc_common/contract), and the forms of their inputs."""

from __future__ import annotations

from typing import get_args

from octavo.platforms.types import Activation, Rows

ROWS_KIND: dict[Rows, int] = {"tokens": 0, "logits": 1, "sequences": 2}
ACTIVATIONS: dict[str, int] = {name: i for i, name in enumerate(get_args(Activation))}
KV_TYPES = {"f32": 0, "bf16": 1, "f16": 2, "int8": 3}
IDS_SOURCES = {"token_ids": 0, "positions": 1, "token_types": 2}
#: input form -> inputs of a scale (0: the row, padded to 64), inputs of a sum (0: no scales, bfloat16)
PREPARED = {
    "prepare_bf16": (32, 0), "prepare_i8g32": (32, 32), "prepare_i8g64": (64, 64), "prepare_i8g128": (128, 128),
    "prepare_i8g256": (256, 16), "prepare_i8row": (0, 1),
}  # fmt: skip
POOL_MODES = {"cls": 0, "last": 1, "mean": 2}
