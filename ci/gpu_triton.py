"""Compiles platforms/gpu/triton for a chip, without one: code objects, and rows of the table of kernels.

A kernel's parameters are the step's address and the fields of its op's arguments, in order: by the rules of alignment they lie
where the argument struct of csrc_common/contract has them, so launchers know no difference. Behind them Triton takes two
addresses of scratch memory, which stay null. The build asks what the compiler made of it, and refuses anything else.

Triton is needed only here and in tests: ci/triton-env makes an environment that has it. Without one no such kernels are built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "platforms/gpu/triton"
VERSION = "3.9.0"
LEVEL = "triton"
TARGETS: dict[str, tuple[str, str | int, int]] = {
    **{arch: ("hip", arch, 64) for arch in ("gfx942", "gfx950")},
    **{f"sm_{chip}": ("cuda", chip, 32) for chip in (90, 100)},
}
TYPES = {"i64": "i64", "i32": "i32", "f32": "fp32"}
SCRATCH_BYTES = 16  # two addresses
WARPS = 8


@dataclass(frozen=True)
class Kernel:
    """A function of `module`. `constants`: sizes of tiles; `pointers`: what they point to, where not to float32; `aligned`:
    parameters that 16 divides, beside the step's address; `stages`: of loads under way, on AMD's and on NVIDIA's chips."""

    op: str
    module: str
    tile_rows: int
    tile_outs: int
    constants: dict[str, int]
    pointers: dict[str, str] = field(default_factory=dict)
    aligned: tuple[str, ...] = ()
    stages: tuple[int, int] = (2, 3)

    @property
    def name(self) -> str:
        return f"{self.op}__{LEVEL}"


KERNELS = (
    Kernel(
        "linear_bf16", "linear", 128, 128, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
        {"x": "bf16", "weight": "bf16", "sums": "i32"}, ("x", "ldx", "weight", "y", "ldy"),
    ),
    Kernel(
        "rms_norm_prepare_bf16", "norm", 1, 0, {"BLOCK": 4096}, {"q": "bf16", "sums": "i32"},
        ("ldx", "weight", "y", "ldy", "q", "ldq"), stages=(1, 1),
    ),
)  # fmt: skip


def python() -> str:
    """A Python that has the pinned Triton: TRITON_PYTHON, this one, or that of ci/triton-env; '' if there is none."""
    if "TRITON_PYTHON" in os.environ:
        return os.environ["TRITON_PYTHON"]
    if find_spec("triton") is not None:
        return sys.executable
    made = ROOT / "build/triton-env"
    return str(made / "bin/python") if (made / ".complete").exists() else ""


def missing() -> str:
    """Why nothing can be compiled here ('' = it can)."""
    return "" if python() else f"triton {VERSION} is not installed: ci/triton-env makes an environment that has it"


def parameters(fields: Iterable[dict[str, Any] | tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """(name, offset behind the step's address, kind) of a kernel's parameters: the op's fields, a pair of numbers as two."""
    out = [("step", -8, "pointer")]
    for name, offset, kind in fields:
        if kind == "rows":
            out += [("rows_kind", offset, "i32"), ("rows_fixed", offset + 4, "i32")]
        else:
            out.append((name, offset, kind))
    return out


def types_of(kernel: Kernel, taken: list[tuple[str, int, str]]) -> dict[str, str]:
    """Triton's types of a kernel's parameters."""
    pointers = {"step": "i64", **kernel.pointers}
    return {name: f"*{pointers.get(name, 'fp32')}" if kind == "pointer" else TYPES[kind] for name, _, kind in taken}


def row_of(kernel: Kernel, row: dict[str, Any], wave: int, shared_bytes: int = 0, only: str = "") -> dict[str, Any]:
    """A kernel's row of the table, made from one of its op's others."""
    return {
        "op": kernel.op, "level": LEVEL, "threads": WARPS * wave, "tile_rows": kernel.tile_rows, "tile_outs": kernel.tile_outs,
        "args_bytes": row["args_bytes"] + SCRATCH_BYTES, "fields": row["fields"], "file": f"{kernel.name}.co",
        "shared_bytes": shared_bytes, "only": only,
    }  # fmt: skip


def build(arch: str, folder: Path, table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the kernels for a chip, their code objects in `folder`; [] for a chip that none are built for, or without Triton.
    `table`: rows of the op's other kernels, which say what it takes."""
    if arch not in TARGETS or missing():
        return []
    made = folder / "triton.json"
    sources = (*SOURCES.glob("*.py"), *(ROOT / "csrc_common/contract").glob("*.h"), Path(__file__))
    newest = max(path.stat().st_mtime for path in sources)
    codes = [folder / f"{kernel.name}.co" for kernel in KERNELS]
    if not all(path.exists() and path.stat().st_mtime > newest for path in (made, *codes)):
        command = [python(), "-W", "ignore", "-m", "ci.gpu_triton", arch, str(folder)]
        places = {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "TRITON_CACHE_DIR": str(ROOT / "build/triton-cache"),
            "TRITON_INTERPRET": "0",
        }
        done = subprocess.run(
            command, input=json.dumps(table), text=True, capture_output=True, cwd=ROOT, env={**os.environ, **places}
        )
        if done.returncode:
            raise RuntimeError(f"Triton for {arch}: {done.stdout}{done.stderr}"[-4000:])
        fresh = made.with_suffix(f".{os.getpid()}")
        fresh.write_text(done.stdout)
        os.replace(fresh, made)
    return list(json.loads(made.read_text()))


def main() -> None:
    """In a Python with Triton: compiles for a chip into a folder; the other kernels' rows on stdin, those made on stdout."""
    import triton

    if triton.__version__ != VERSION:
        raise SystemExit(f"triton {VERSION} is needed, {sys.executable} has {triton.__version__}")
    arch, folder = sys.argv[1], Path(sys.argv[2])
    ops = {row["op"]: row for row in json.load(sys.stdin)}
    print(json.dumps([compiled(kernel, arch, folder, ops[kernel.op]) for kernel in KERNELS]))


def compiled(kernel: Kernel, arch: str, folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Writes a kernel's code object and what ptxas said of it; its row."""
    from importlib import import_module

    import triton
    from triton.backends.compiler import GPUTarget

    kind, chip, wave = TARGETS[arch]
    taken = parameters(row["fields"])
    function = getattr(import_module(f"octavo.platforms.gpu.triton.{kernel.module}"), kernel.name)
    types = types_of(kernel, taken)
    names = [*types, *kernel.constants]
    if list(function.arg_names) != names:
        raise SystemExit(f"{kernel.name} takes {', '.join(function.arg_names)}; its op has {', '.join(names)}")
    source = triton.compiler.ASTSource(
        fn=function, constexprs=kernel.constants, signature=types | dict.fromkeys(kernel.constants, "constexpr"),
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in ("step", *kernel.aligned)},
    )  # fmt: skip
    options = {"num_warps": WARPS, "num_stages": kernel.stages[kind == "cuda"], "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget(kind, chip, wave), options=options)
    if made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
        raise SystemExit(f"{kernel.name} for {arch} wants scratch memory, and no launcher gives it any")
    code, log = folder / f"{kernel.name}.co", ""
    code.write_bytes(made.asm["hsaco" if kind == "hip" else "cubin"])
    if kind == "cuda":
        offsets = offsets_in_ptx(made.asm["ptx"])
        log = assembled(made.asm["ptx"], chip)
    else:
        offsets = offsets_in_notes(made.asm["amdgcn"])
    expected = [8 + offset for _, offset, _ in taken] + [8 + row["args_bytes"], 16 + row["args_bytes"]]
    if offsets != expected:
        raise SystemExit(f"{kernel.name} for {arch} takes parameters at {offsets}, not at {expected}")
    code.with_suffix(".log").write_text(log)
    return row_of(kernel, row, wave, made.metadata.shared, arch)


def offsets_in_notes(assembly: str) -> list[int]:
    """Where a kernel of AMD's takes its parameters, as its metadata says, without those of the runtime."""
    arguments = assembly.partition(".args:")[2].partition(".group_segment_fixed_size")[0]
    found = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+\d+\s+\.value_kind:\s+(\w+)", arguments)
    return [int(at) for at, kind in found if not kind.startswith("hidden_")]


def offsets_in_ptx(ptx: str) -> list[int]:
    """The same of NVIDIA's: parameters lie one behind the other, each aligned to its size (CUDA driver API, cuLaunchKernel)."""
    header = ptx.partition(".entry")[2].partition(")")[0]
    at, out = 0, []
    for bits in re.findall(r"\.param \.[a-z](\d+)", header):
        size = int(bits) // 8
        at = -(-at // size) * size
        out.append(at)
        at += size
    return out


def assembled(ptx: str, chip: int) -> str:
    """What ptxas says of registers and spills."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    command = [
        get_ptxas(chip).path,
        "-v",
        f"--gpu-name={sm_arch_from_capability(chip)}",
        "-o",
        os.devnull,
        "/dev/stdin",
    ]
    done = subprocess.run(command, input=ptx, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"ptxas: {done.stderr[-2000:]}")
    return done.stderr


if __name__ == "__main__":
    main()
