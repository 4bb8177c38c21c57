"""A platform out of the user's torch: for GPUs that none of our code objects fits, and on a CPU to be tested anywhere.

Slower than kernels of our own: every op is torch's, launched one by one, and integer weights are unpacked for each product. It
proves itself on the self-test's cases before it serves.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.sampling import HostSampler
from octavo.platforms.gpu.torch_base.cell import TorchCell
from octavo.platforms.gpu.torch_base.executable import TorchExecutable
from octavo.platforms.gpu.torch_base.gate import Gate
from octavo.platforms.gpu.torch_base.runtime import LEVEL, WORK_ELEMENTS, torch
from octavo.platforms.gpu.torch_base.sizes import sizes_of
from octavo.platforms.gpu.torch_base.weights import TorchLinear, TorchWeights
from octavo.platforms.platform import CacheHome, Capacity, Model
from octavo.platforms.reference.kv import page_bytes
from octavo.platforms.reference.platform import OPS
from octavo.platforms.types import KVSpec, RawTensor, Variant

log = logging.getLogger("octavo.platforms")
#: work arrays of an op that are alive at once, and arrays of all tokens' rows; both are counted generously
_WORK_ARRAYS, _ROW_ARRAYS = 6, 8


def best_device() -> str:
    """The first GPU that torch reaches (CUDA's or ROCm's: torch calls both cuda), else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class ProvenWeights(TorchWeights):
    """Weights whose formats are proven on the device before the first of each is taken."""

    def __init__(self, gate: Gate, device: Any, *, is_dry: bool) -> None:
        super().__init__(device, is_dry=is_dry)
        self._gate = gate

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> TorchLinear:
        if not self.is_dry:
            self._gate.prove_format(quantize or parts[0].format)
        return super().linear(parts, bias, transpose=transpose, quantize=quantize)


class TorchPlatform:
    """Implements `octavo.platforms.platform.Platform` on a torch device ("cpu", "cuda", "cuda:1")."""

    block_tokens = 32
    levels: tuple[str, ...] = (LEVEL,)

    def __init__(self, device: str, name: str = LEVEL, num_threads: int = 1) -> None:
        self.name = name
        self.device = torch.device(device)
        self.num_threads = num_threads
        try:
            torch.ones(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise PlatformError(f"torch {torch.__version__} does not reach {device}: {error}") from error
        if self.device.type == "cpu":
            torch.set_num_threads(num_threads)
        log.warning(
            "models run on torch %s, op by op, on %s: correct, and slower than kernels made for the chip",
            torch.__version__,
            self.where,
        )

    @property
    def where(self) -> str:
        """The device, in words."""
        return f"cuda ({torch.cuda.get_device_name(self.device)})" if self.device.type == "cuda" else str(self.device)

    @cached_property
    def gate(self) -> Gate:
        return Gate(TorchCell(self.device, HostSampler().sample), self.where)

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> TorchWeights:
        del cache  # packing takes the device no longer than reading
        return ProvenWeights(self.gate, self.device, is_dry=is_dry)

    def memory(self) -> tuple[int, int] | None:
        if self.device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(self.device)
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(
            self.device
        )  # torch's own spare blocks
        return int(total), int(free + kept)

    def page_bytes(self, spec: KVSpec) -> int:
        return page_bytes(spec)

    def scratch_bytes(self, model: Model, spec: KVSpec, capacity: Capacity) -> int:
        """Work arrays of the hungriest op and some rows of every token."""
        rows = max(sizes_of(model).widest, spec.num_kv_heads * spec.head_dim)
        return 4 * (_WORK_ARRAYS * WORK_ELEMENTS + _ROW_ARRAYS * capacity.max_tokens * rows)

    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> TorchExecutable:
        self.gate.prove(sizes_of(model).ops, spec.dtype)
        return TorchExecutable(model, spec, capacity, self.device, self.gate.cell.sample)

    def variants(self) -> list[Variant]:
        return [Variant(op, f"{op}__{LEVEL}", LEVEL, detail={"chosen": True, "from_rows": 0}) for op in OPS]

    def diagnose(self, *, is_testing_all: bool = False) -> dict[str, Any]:
        """The self-test on the device; all of it is what a start would run, and more."""
        del is_testing_all
        return {"selftest": [self.gate.result()]}

    def close(self) -> None:
        """Torch gives back what it keeps for later; tensors that are left go with their owners."""
        torch.cuda.empty_cache()  # nothing where torch has not used a GPU
