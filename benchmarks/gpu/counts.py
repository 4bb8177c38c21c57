"""What GPU kernels read, and how many matrix instructions they issue, against the least there is: counted, no time.

    octavo bench gpu/counts -- [--arch gfx950] [--only PREFIX,...] [--docs]

gpu.ARCH.KERNEL.SHAPE.reads  lines of 64 bytes of global memory that waves ask for, as a multiple of weights, inputs, keys,
                             values and logits read once
gpu.ARCH.KERNEL.SHAPE.mma    matrix instructions as a multiple of those that the shape needs at least (0: none is used)
gpu.ARCH.KERNEL.SHAPE.lds    of products: bytes that waves write to shared memory and read from it per matrix instruction,
gpu.ARCH.KERNEL.SHAPE.slots  and the share of matrix instructions among all that waves issue; both of what twice as many inputs
                             take more, which is the loop without its beginning and its end
--docs writes the table of docs/gpu.md. Needs an emulator of AMD's machine code (docs/gpu.md, "How it is proven") and clang-22.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.arm.page import markdown, written
from benchmarks.common import ROOT, parser, report, row
from benchmarks.sampling import KINDS, logits_of, rows_of
from ci.gpu import Target, build, missing
from tests.platforms.gpu import emulated_device

from octavo.platforms.gpu.eager import GpuEagerOps
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.sampling import DeviceSampler
from octavo.platforms.gpu.weights import FAST_PREPARE, GpuWeights
from octavo.platforms.recorded.codes import PREPARED
from octavo.platforms.selftest.values import batch, one_layer, tensors, values

PAGE = ROOT / "docs/gpu.md"
NUM_UNITS = 4  # of the emulated device: more blocks than these would only take longer
INPUTS_OF_MMA = 32


@dataclass(frozen=True)
class Product:
    """A linear op: format, rows, inputs, outputs."""

    form: str
    rows: int
    num_in: int
    num_out: int
    prefix: str = "linear_"

    @property
    def shape(self) -> str:
        return f"{self.num_out} x {self.num_in}, {self.rows} rows"

    def run(self, platform: GpuPlatform) -> int:
        """Runs it; returns the bytes that must be read at least."""
        stored = tensors("counts", self.form, self.num_out, self.num_in)[0]
        weight = GpuWeights(platform.native).linear([stored])
        GpuEagerOps(platform.native, platform.team).linear(values("counts x", self.rows, self.num_in), weight)
        form = FAST_PREPARE.get(weight.packed.kind, weight.packed.prepare)
        width = PREPARED[form].element_bytes * PREPARED[form].parts if form else 4
        return weight.packed.num_bytes(self.num_out, self.num_in) + self.rows * self.num_in * width

    @property
    def least_mma(self) -> int:
        return -(-self.num_out // 16) * -(-self.rows // 16) * -(-self.num_in // INPUTS_OF_MMA)


@dataclass(frozen=True)
class Paged:
    """Attention of the last `new` of `length` tokens of a sequence."""

    dtype: Any
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    new: int = 1
    prefix: str = "paged_attention_"
    least_mma: int = 0

    @property
    def shape(self) -> str:
        new = f"{self.new} new of " if self.new > 1 else ""
        return f"{new}{self.length} tokens, {self.heads}:{self.kv_heads} heads of {self.head_dim}"

    def run(self, platform: GpuPlatform) -> int:
        spec, width = one_layer(self.dtype, self.kv_heads, self.head_dim), self.kv_heads * self.head_dim
        step, stored = batch([(self.length - self.new, self.new)]), batch([(0, self.length - self.new)])
        stored.block_tables = step.block_tables
        pages = 1 + int(step.block_tables[0].max())
        ops = GpuEagerOps(platform.native, platform.team, spec, pages, max_len=self.length + 1)
        for tag, rows in (("past", stored), ("new", step)):
            if not rows.num_tokens:
                continue
            ops.begin(rows)
            k, v = (values(f"{name} {tag}", rows.num_tokens, width) for name in "kv")
            ops.kv_append(k, v, layer=0)
        q = values("q", self.new, self.heads * self.head_dim)
        ops.paged_attention(q, layer=0, heads=self.heads, scale=self.head_dim**-0.5)
        element, scales = (
            {"bf16": 2, "f16": 2, "int8": 1, "fp8": 1}[self.dtype],
            8 if self.dtype in ("int8", "fp8") else 0,
        )
        return self.kv_heads * self.length * (2 * self.head_dim * element + scales)


@dataclass(frozen=True)
class Packed:
    """Attention in both directions over a packed sequence."""

    length: int
    heads: int
    head_dim: int
    dtype: str = "f32"
    prefix: str = "varlen_attention_"
    least_mma: int = 0

    @property
    def shape(self) -> str:
        return f"{self.length} tokens, {self.heads} heads of {self.head_dim}"

    def run(self, platform: GpuPlatform) -> int:
        ops = GpuEagerOps(platform.native, platform.team)
        ops.begin(batch([(0, self.length)]))
        q, k, v = (values(f"packed {name}", self.length, self.heads * self.head_dim) for name in "qkv")
        how: dict[str, Any] = {"heads": self.heads, "kv_heads": self.heads, "scale": self.head_dim**-0.5}
        ops.varlen_attention(q, k, v, **how, dtype=self.dtype)
        return k.nbytes + v.nbytes


@dataclass(frozen=True)
class Draw:
    """Sampling of one kind of row (benchmarks/sampling.py)."""

    kind: str
    rows: int
    vocab: int
    prefix: str = "sample_"
    least_mma: int = 0

    @property
    def shape(self) -> str:
        return f"{self.kind}, {self.vocab} logits, {self.rows} rows"

    def run(self, platform: GpuPlatform) -> int:
        logits = logits_of(self.rows, self.vocab)
        batch = rows_of(self.rows, self.vocab, **KINDS[self.kind])
        DeviceSampler(platform.native).sample_host(logits, batch)
        return logits.nbytes


WIDE = ("bf16", "f16", "w8a8", "q4_0", "q8_0", "q4_k", "i4g128", "f8g128", "mxfp8")
ONES = ("bf16", "f16", "w8a8", "q4_0", "q8_0", "q4_k", "i4g128", "f8row", "mxfp4")
CASES: tuple[Product | Paged | Packed | Draw, ...] = (
    *(Product(form, rows, 1024, 64) for form in ONES for rows in (1, 16)),
    *(Product(form, 64, 512, 256) for form in WIDE),
    *(Paged(dtype, 1024, 8, 1, 128) for dtype in ("bf16", "f16", "int8", "fp8")),
    *(Paged(dtype, 1024, 4, 4, 64) for dtype in ("bf16", "f16", "int8", "fp8")),
    Paged("bf16", 256, 8, 1, 128, new=256),
    Paged("int8", 256, 8, 1, 128, new=256),
    Paged("fp8", 256, 8, 1, 128, new=256),
    *(Packed(128, 2, 64, dtype) for dtype in ("f32", "bf16")),
    *(Draw(kind, 1, 32_768) for kind in KINDS),
)


def launches(case: Any, arch: str, folder: Path) -> tuple[list[tuple[str, Any]], int]:
    """(kernel, what the emulator counted) of every launch of a case's op, and the bytes that it must read at least."""
    device = emulated_device.EmulatedDevice(arch, NUM_UNITS)
    least = case.run(GpuPlatform(device, folder))
    return [(name, stats) for name, _, stats in device.stats if name.startswith(case.prefix)], least


def loop_of(shorter: list[tuple[str, Any]], longer: list[tuple[str, Any]]) -> tuple[float, float]:
    """(bytes of shared memory per matrix instruction, share of matrix instructions) of what `longer` runs beyond `shorter`."""

    def more(number: Callable[[Any], int]) -> int:
        return sum(number(stats) for _, stats in longer) - sum(number(stats) for _, stats in shorter)

    issued = more(lambda stats: stats.count["MFMA"])
    return (
        more(lambda stats: stats.bytes["lds_read"] + stats.bytes["lds_write"]) / issued,
        issued / more(lambda stats: stats.instructions),
    )


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Two rows per case, four of a product."""
    if why := missing("rocm") or emulated_device.missing():
        raise SystemExit(
            f"{why}; clang-22 and an emulator of machine code are needed (docs/gpu.md, Emulated machine code)"
        )
    folder = build(Target("rocm", args.arch))
    for case in CASES:
        if not case.prefix.startswith(tuple(args.only.split(","))):
            continue
        mine, least = launches(case, args.arch, folder)
        read = 64 * sum(stats.lines["global_load"] for _, stats in mine)
        issued = sum(stats.count["MFMA"] for _, stats in mine)
        kernel = " + ".join(dict.fromkeys(name for name, _ in mine))
        same = {"kernel": kernel, "shape": case.shape, "arch": args.arch}
        name = f"gpu.{args.arch}.{kernel}.{case.shape}"
        yield row(f"{name}.reads", "x the least", [read / least], what="reads", **same)
        yield row(
            f"{name}.mma", "x the least", [issued / case.least_mma if case.least_mma else 0.0], what="mma", **same
        )
        if not isinstance(case, Product):
            continue
        lds, slots = loop_of(mine, launches(replace(case, num_in=2 * case.num_in), args.arch, folder)[0])
        yield row(f"{name}.lds", "bytes", [lds], what="lds", **same)
        yield row(f"{name}.slots", "of all instructions", [slots], what="slots", **same)


def table(found: list[dict[str, Any]]) -> str:
    """A row per kernel and shape."""
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for one in found:
        lines.setdefault((one["kernel"], one["shape"]), {})[one["what"]] = one["median"]
    header = ("kernel", "shape", "bytes read / least", "matrix instructions / least")
    return markdown(
        (*header, "bytes of shared memory / matrix instruction", "matrix instructions / all"),
        ((f"`{kernel}`", shape, f"{cells['reads']:.2f}", f"{cells['mma']:.2f}" if cells["mma"] else "-",
          *((f"{cells['lds']:.0f}", f"{cells['slots']:.1%}") if "lds" in cells else "--"))
         for (kernel, shape), cells in lines.items()),
    )  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--arch", default="gfx950", choices=emulated_device.ARCHS)
    options.add_argument("--only", default="", metavar="PREFIX,...", help="ops that begin so (default: all)")
    options.add_argument("--docs", action="store_true", help="write the table of docs/gpu.md; needs all kernels")
    args = options.parse_args()
    if args.docs and args.only:
        options.error("--docs writes the whole table: leave --only out")
    found: list[dict[str, Any]] = []
    report((found.append(result) or result for result in results(args)), args, "gpu-counts")
    if args.docs:
        PAGE.write_text(written(PAGE.read_text(), {"gpu_counts": table(found)}))


if __name__ == "__main__":
    main()
