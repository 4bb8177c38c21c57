"""Arm cells on another machine: the module cross-built, Python and numpy of an arm64 Debian root, run by qemu.

A cell runs on a processor that has its level's features and no more, so an instruction from beyond them is a crash. Everything
is kept in build/arm64: the root and the wheels are made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.matrix.cases import ROOT

HOME = ROOT / "build/arm64"
#: level -> qemu's processor
PROCESSORS = {"neon": "cortex-a72", "dotprod": "neoverse-n1", "bf16": "max"}
NEEDED = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static",
    "debootstrap": "debootstrap",
}
WHEELS = (
    *("numpy", "msgspec", "blake3", "pytest", "hypothesis"),
    *("sortedcontainers", "iniconfig", "pluggy", "packaging", "pygments"),
)
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64", "any")
TIMEOUT_S = 1200


def missing() -> str:
    """Why Arm cells cannot run here ('' = they can)."""
    absent = [package for tool, package in NEEDED.items() if shutil.which(tool) is None]
    if absent:
        return f"apt install {' '.join(absent)}"
    return "" if os.geteuid() == 0 else "an arm64 root is made, and entered, by root only"


def make() -> str:
    """Builds the root and the module; '' or why not."""
    try:
        _run([str(ROOT / "ci/arm-root"), str(HOME / "root")])
        version = next((HOME / "root/usr/lib").glob("python3.*[0-9]")).name.removeprefix("python")
        _wheels(version)
        _module(version)
    except (subprocess.CalledProcessError, StopIteration) as error:
        output = getattr(error, "stdout", "") or ""
        return f"{error}: {output[-400:]}"
    return ""


def run_cell(level: str, out: Path) -> dict[str, Any]:
    """The row of one level, by the same code that runs native cells; {"error": ...} if it crashed or hung."""
    out.unlink(missing_ok=True)
    inside = {"PYTHONPATH": "/opt/octavo/src:/opt/octavo:/opt/site", "QEMU_CPU": PROCESSORS[level], "HOME": "/root"}
    words = [f"{name}={value}" for name, value in inside.items()]
    place = Path("/opt/octavo") / out.relative_to(ROOT)
    command = ["chroot", str(HOME / "root"), "/usr/bin/env", "-C", "/opt/octavo", *words]
    command += ["/usr/bin/qemu-aarch64-static", "/usr/bin/python3", "-m", "tests.matrix.worker"]
    command += ["cell", f"arm-{level}", str(place)]
    try:
        done = subprocess.run(_mounted(command), capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"still running after {TIMEOUT_S} s"}
    if done.returncode or not out.exists():
        return {"error": f"ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}"}
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _mounted(command: list[str]) -> list[str]:
    """The command in a mount namespace of its own, where the root shows this checkout, /proc and /dev."""
    root = HOME / "root"
    mounts = f"mount --bind {ROOT} {root}/opt/octavo && mount --bind /proc {root}/proc && mount --bind /dev {root}/dev"
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]


def _wheels(version: str) -> None:
    """numpy and what the engine's platforms import, for the root's Python."""
    site = HOME / "root/opt/site"
    if site.exists():
        return
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
    ]
    command += [f"--python-version={version}", f"--target={site}.new", *(f"--platform={name}" for name in PLATFORMS)]
    _run([*command, *WHEELS])
    Path(f"{site}.new").rename(site)


def _module(version: str) -> None:
    """_neon, cross-built beside the package's sources."""
    build, root = HOME / "build", HOME / "root"
    tag = version.replace(".", "")
    pybind11 = _run([sys.executable, "-m", "pybind11", "--cmakedir"]).strip()
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/ci/aarch64.cmake"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DOCTAVO_WERROR=ON", f"-Dpybind11_DIR={pybind11}"]
    configure += ["-DPYBIND11_USE_CROSSCOMPILING=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [
        f"-DPython_INCLUDE_DIR={root}/usr/include/python{version}",
        f"-DCMAKE_CXX_FLAGS=-idirafter {root}/usr/include",
    ]
    configure += [f"-DPYTHON_MODULE_EXTENSION=.cpython-{tag}-aarch64-linux-gnu.so"]
    _run([*configure, *(["-G", "Ninja"] if shutil.which("ninja") else [])])
    _run(["cmake", "--build", str(build), "-j", str(os.cpu_count())])
    for file in build.glob("_neon.*.so"):
        shutil.copy(file, ROOT / "src/octavo" / file.name)


def _run(command: list[str]) -> str:
    return subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT
    ).stdout
