"""Builds GPU kernels: `python -m ci.gpu build rocm gfx950 cuda sm_90 host wave64 ...` (all targets where none is named).

Code objects and their table of kernels go to build/gpu/<kind>/<arch>. AMD's need clang 22 (Debian's clang-22 and lld-22;
no ROCm), NVIDIA's nvcc. `host` is the stand-in for a GPU that tests run kernels on: one library of fibers, for waves of 32 or 64.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform as machine_info
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build/gpu"
ROCM = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx11-generic", "gfx12-generic")
CUDA = ("sm_80", "sm_90", "sm_100", "sm_120")
HOST = ("wave64", "wave32")
COMMON = ("-std=c++17", "-DOCTAVO_GPU", f"-I{ROOT / 'csrc_common'}")
HIP_FLAGS = (
    *("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "--no-gpu-bundle-output", "-O3"),
    *("-ffp-contract=off", "-fgpu-flush-denormals-to-zero"),
)
CUDA_FLAGS = ("-cubin", "-O3", "-Xptxas=-v", "-ftz=true", "-fmad=false", "-prec-div=true", "-prec-sqrt=true")


@dataclass(frozen=True)
class Target:
    """What code is built for."""

    kind: str
    arch: str

    @property
    def folder(self) -> Path:
        return HOME / self.kind / self.arch

    @property
    def wave(self) -> int:
        if self.kind == "host":
            return int(self.arch.removeprefix("wave"))
        return 64 if self.arch.startswith("gfx9") else 32


TARGETS = [Target(kind, arch) for kind, archs in (("host", HOST), ("rocm", ROCM), ("cuda", CUDA)) for arch in archs]


def clang() -> str | None:
    """A clang that knows the newest of our targets."""
    names = [os.environ.get("OCTAVO_CLANG", "clang-22"), *(f"clang-{v}" for v in (23, 24))]
    return next((found for name in names if (found := shutil.which(name))), None)


def missing(kind: str) -> str:
    """Why a kind cannot be built here ('' = it can)."""
    if kind == "rocm":
        needed = (
            clang() and shutil.which("ld.lld-22") and (shutil.which("llvm-readelf-22") or shutil.which("llvm-readelf"))
        )
        return "" if needed else "apt install clang-22 lld-22 llvm-22"
    if kind == "cuda":
        return "" if shutil.which("nvcc") else "nvcc is not installed"
    return "" if shutil.which(os.environ.get("CXX", "g++")) else "no C++ compiler"


def sources(kind: str) -> list[Path]:
    """The units of a kind, one code object each."""
    folder, suffix = {"rocm": ("csrc_hip", "hip"), "cuda": ("csrc_cuda", "cu")}[kind]
    return sorted((ROOT / folder).rglob(f"*.{suffix}"))


def compile_all(targets: Sequence[Target], jobs: int = 2) -> None:
    """What is not newer than its sources, of several targets at once: no core waits for the last unit of each."""
    for wave in {target.wave for target in targets}:
        host_library(wave)
    units = [(target, source) for target in targets for source in sources(target.kind)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda unit: _compile(*unit), units))
    with ThreadPoolExecutor(jobs) as pool:  # what is left: kernels in Triton, and what the compilers made of all
        list(pool.map(build, targets))


def build(target: Target, jobs: int = 2) -> Path:
    """Builds what is not newer than its sources; returns the folder. A kernel that spills registers on this chip is left out of
    its table, and so never used there."""
    from ci import gpu_triton
    from ci.gpu_resources import resources  # which needs this module's targets

    target.folder.mkdir(parents=True, exist_ok=True)
    table = host_table(target.wave)
    if target.kind == "host":
        _write(target.folder / "kernels.json", json.dumps([{**row, "file": "host"} for row in table]))
        return target.folder
    with ThreadPoolExecutor(jobs) as pool:
        files = list(pool.map(lambda source: _compile(target, source), sources(target.kind)))
    made = gpu_triton.build(target.arch, target.folder, table)
    spilling = {kernel.kernel for kernel in resources(target) if kernel.complaint}  # the next best level serves there
    rows = [
        {**row, "file": file.name}
        for row in table
        for file in files
        if f"{row['op']}__{row['level']}" not in spilling
        and _holds(file.read_bytes(), f"{row['op']}__{row['level']}", target.kind)
    ]
    _refuse_twins(rows)
    rows += [row for row in made if f"{row['op']}__{row['level']}" not in spilling]
    digests = {name: digest((target.folder / name).read_bytes()) for name in {row["file"] for row in rows}}
    rows = [{**row, "digest": digests[row["file"]]} for row in rows]
    _write(target.folder / "kernels.json", json.dumps(rows, indent=0))
    for stale in set(target.folder.glob("*.co")) - {*files, *(target.folder / row["file"] for row in made)}:
        stale.unlink()
        stale.with_suffix(".log").unlink(missing_ok=True)
    return target.folder


def digest(code: bytes) -> str:
    """Of a code object, as octavo.platforms.gpu.rows.digest_of has it: this builds where octavo is not installed."""
    return hashlib.blake2b(code, digest_size=16).hexdigest()


def _refuse_twins(rows: list[dict[str, Any]]) -> None:
    """A kernel that two units compile, because one includes the other's."""
    files: dict[str, str] = {}
    for row in rows:
        name = f"{row['op']}__{row['level']}"
        if other := files.get(name):
            raise RuntimeError(f"{name} is in {other} and in {row['file']}; let one unit include both headers")
        files[name] = row["file"]


def _write(path: Path, text: str) -> None:
    """In one piece: others may be reading."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    os.replace(fresh, path)


def host_library(wave: int) -> Path:
    """The library of fibers for waves of this width."""
    made = HOME / f"host/wave{wave}/kernels.so"
    if _is_newer(made):
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    simd = ["-mfma"] if machine_info.machine() in ("x86_64", "AMD64") else []
    command = [
        *(
            os.environ.get("CXX", "g++"),
            "-x",
            "c++",
            "-",
            *COMMON,
            f"-I{ROOT / 'tests/simt'}",
            "-O2",
            "-fPIC",
            "-shared",
        ),
        *("-ffp-contract=off", *simd, "-DOCTAVO_ISA_NS=simt", f"-DOCTAVO_WAVE={wave}", "-Wl,-z,noexecstack"),
        *("-o", f"{made}.{os.getpid()}"),
    ]
    _run(command, text='#include "gpu/all.h"\n#include "fibers.h"\n')
    os.replace(f"{made}.{os.getpid()}", made)
    return made


def host_table(wave: int) -> list[dict[str, Any]]:
    """Every kernel of the sources, as the library lists them."""
    program = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).octavo_gpu_rows; f.restype = ctypes.c_char_p; print(f().decode())"
    return list(json.loads(_run([sys.executable, "-c", program, str(host_library(wave))])))


def _compile(target: Target, source: Path) -> Path:
    target.folder.mkdir(parents=True, exist_ok=True)
    made = target.folder / f"{source.stem}.co"
    if _is_newer(made):
        return made
    names = f"-DOCTAVO_ISA_NS={target.arch.replace('-', '_')}"
    if target.kind == "rocm":
        command = [str(clang()), *HIP_FLAGS, f"--offload-arch={target.arch}"]
    else:
        command = ["nvcc", *CUDA_FLAGS, f"-arch={target.arch}"]
    said = _run([*command, *COMMON, names, str(source), "-o", f"{made}.new"])
    made.with_suffix(".log").write_text(said)
    os.replace(f"{made}.new", made)
    return made


def _is_newer(made: Path) -> bool:
    """Whether a file is newer than everything that GPU code is made of."""
    if not made.exists():
        return False
    folders = ("csrc_common", "csrc_hip", "csrc_cuda", "tests/simt")
    newest = max(path.stat().st_mtime for name in folders for path in (ROOT / name).rglob("*") if path.is_file())
    return made.stat().st_mtime > max(newest, Path(__file__).stat().st_mtime)


def _holds(code: bytes, kernel: str, kind: str) -> bool:
    """Whether a code object has a kernel: its name stands in the table of symbols."""
    return f"\0{kernel}{'.kd' if kind == 'rocm' else ''}\0".encode() in code


def _run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}"[-4000:])
    return done.stdout + done.stderr


def main() -> None:
    from ci import gpu_triton

    if sys.argv[1:2] != ["build"]:
        raise SystemExit(__doc__)
    wanted = set(sys.argv[2:])
    unknown = wanted - {target.kind for target in TARGETS} - {target.arch for target in TARGETS}
    if unknown:
        raise SystemExit(f"unknown target {sorted(unknown)[0]!r}; known are {', '.join(t.arch for t in TARGETS)}")
    for target in TARGETS:
        if wanted and not wanted & {target.kind, target.arch}:
            continue
        if why := missing(target.kind):
            print(f"{target.kind} {target.arch}: not built: {why}")
            continue
        if target.arch in gpu_triton.TARGETS and (why := gpu_triton.missing()):
            print(f"{target.kind} {target.arch}: without kernels made by Triton: {why}")
        folder = build(target)
        num_bytes = sum(file.stat().st_size for file in folder.glob("*.co"))
        rows = json.loads((folder / "kernels.json").read_text())
        print(f"{target.kind} {target.arch}: {len(rows)} kernels, {num_bytes / 1e6:.2f} MB in {folder}")


if __name__ == "__main__":
    main()
