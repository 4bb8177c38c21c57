"""Paged keys and values in one tensor on the device, laid out as the reference's (platforms/reference/kv.py).

`data` is [page, layer in group, k | v, kv head, token, dim] in the KV dtype, `scales` the same without the last axis (float32,
int8 and fp8 only; E4M3 as codes). Page 0 is the null page: it may hold anything, and what is read of it must be masked.
"""

from __future__ import annotations

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.torch_base.functions import quantize, quantize_e4m3
from octavo.platforms.gpu.torch_base.runtime import Device, Tensor, torch
from octavo.platforms.types import KVSpec

K, V = 0, 1
_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "int8": torch.int8, "fp8": torch.uint8}


class TorchPages:
    """The pages of one model."""

    def __init__(self, spec: KVSpec, num_pages: int, device: Device) -> None:
        self.spec = spec
        shape = (num_pages, spec.layers_per_group, 2, spec.num_kv_heads, spec.block_tokens, spec.head_dim)
        try:
            self.data = torch.zeros(shape, dtype=_TYPES[spec.dtype], device=device)
            self.scales = torch.zeros(shape[:-1], device=device) if spec.has_scales else None
        except RuntimeError as error:
            raise PlatformError(
                f"the KV pool of {num_pages} pages does not fit on {device}: {error}; ask for a smaller one (--kv-gib)"
            ) from error

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Whole pages (source, destination), in order."""
        for source, destination in pairs:
            self.data[destination].copy_(self.data[source])
            if self.scales is not None:
                self.scales[destination].copy_(self.scales[source])

    def append(self, k: Tensor, v: Tensor, layer: int, page: Tensor, slot: Tensor) -> None:
        """Stores [T, kv heads * head_dim] at page [T] and slot [T] of the layer's group, rounded to the KV dtype."""
        _, inner = self.spec.place(layer)
        for which, rows in ((K, k), (V, v)):
            heads = rows.unflatten(1, (self.spec.num_kv_heads, self.spec.head_dim))
            if self.scales is not None:
                heads, scales = (quantize_e4m3 if self.spec.dtype == "fp8" else quantize)(heads)
                self.scales[:, inner, which][page, :, slot] = scales
            self.data[:, inner, which][page, :, slot] = heads.to(self.data.dtype)

    def read(self, layer: int, which: int, page: Tensor, slot: Tensor) -> tuple[Tensor, Tensor | None]:
        """(float32 [..., kv heads, dim] as stored, float32 [..., kv heads] scales of codes) at page [...] and slot [...]."""
        _, inner = self.spec.place(layer)
        stored = self.data[:, inner, which][page, :, slot]
        values = (stored.view(torch.float8_e4m3fn) if self.spec.dtype == "fp8" else stored).float()
        if self.scales is None:
            return values, None
        return values, self.scales[:, inner, which][page, :, slot]
