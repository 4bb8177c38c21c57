"""Builds of the native module with one thing changed, compiling only what the change reaches.

CMake is configured once and asked for its compile commands; after that an object is named by the digest of its command and of
every file it includes, so it is compiled once whatever the order of faults, and a second run compiles nothing. A fault's
sources are a copy of the native folders: the checkout is never edited. Objects are built with -O1 (their bits are those of -O3
by contract); -O flags of a fault come after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from tests.faults.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc_common", "csrc_avx")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
BASE_FLAGS = ("-O1", "-w")


class BuildError(Exception):
    """A fault that does not fit its file or does not compile."""


def level_of(unit: str) -> str:
    """The level of a translation unit, '' if it has none (bindings, registry)."""
    return Path(unit).stem.partition("__")[2]


class Builder:
    """Compiles variants of the module of the checkout at `root` into `folder`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self.commands = self._configure()

    def _configure(self) -> dict[str, list[str]]:
        """unit -> its compile command without input and output."""
        build = self.folder / "cmake"
        build.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True)
        command = ["cmake", "-S", str(self.root), "-B", str(build), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        command += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={done.stdout.strip()}"]
        if shutil.which("ninja"):
            command += ["-G", "Ninja"]
        run(command, "configure")
        out = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            unit = str(Path(entry["file"]).relative_to(self.root))
            words = shlex.split(entry["command"])
            at = words.index("-o")
            words = words[:at] + words[at + 2 :]
            if unit.startswith(FOLDERS):
                out[unit] = [word for word in words if word not in ("-c", entry["file"])]
        return out

    def compiler(self) -> str:
        """The compiler without the launcher (ccache) that may stand before it in the compile commands."""
        text = (self.folder / "cmake/CMakeCache.txt").read_text()
        return text.partition("\nCMAKE_CXX_COMPILER:")[2].partition("=")[2].partition("\n")[0]

    @cache  # noqa: B019 - a builder lives as long as its process
    def includes(self, file: str) -> frozenset[str]:
        """`file` and everything it includes from the native folders, paths relative to the root."""
        found = {file}
        for name in INCLUDE.findall((self.root / file).read_text()):
            for folder in (*FOLDERS, str(Path(file).parent)):
                path = f"{folder}/{name}"
                if (self.root / path).is_file():
                    found |= self.includes(path)
        return frozenset(found)

    def units_of(self, fault: Fault) -> list[str]:
        """The translation units that a fault reaches."""
        if fault.units:
            return list(fault.units)
        units = [u for u in self.commands if fault.file in self.includes(u) and level_of(u) in ("", *fault.levels)]
        if not units:
            raise BuildError(f"{fault.name}: no unit of {', '.join(fault.levels)} includes {fault.file}")
        return units

    def tree(self, fault: Fault) -> Path:
        """A copy of the native folders with the fault in it."""
        target = self.folder / "trees" / fault.name
        shutil.rmtree(target, ignore_errors=True)
        for folder in FOLDERS:
            shutil.copytree(self.root / folder, target / folder)
        if fault.file:
            path = target / fault.file
            path.write_text(edited(path.read_text(), fault))
        return target

    def compile(self, unit: str, tree: Path, flags: tuple[str, ...] = ()) -> Path:
        """The object of `unit` with sources from `tree`."""
        words = [w.replace(f"{self.root}/csrc_", f"{tree}/csrc_") for w in (*self.commands[unit], *BASE_FLAGS, *flags)]
        digest = hashlib.sha256(" ".join(words).replace(str(tree), "").encode())
        for file in sorted(self.includes(unit)):
            digest.update(file.encode() + b"\0" + (tree / file).read_bytes())
        target = self.folder / "objects" / f"{Path(unit).stem}-{digest.hexdigest()[:16]}.o"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_suffix(f".{os.getpid()}")
            run([*words, "-c", str(tree / unit), "-o", str(fresh)], unit)
            fresh.rename(target)
        return target

    def module(self, name: str, changed: dict[str, Path]) -> Path:
        """Links a module of the unmodified objects with those of `changed` in their place."""
        objects = {unit: self.compile(unit, self.root) for unit in self.commands if unit not in changed} | changed
        target = self.folder / "modules" / name / f"_avx{EXTENSION_SUFFIXES[0]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        run(
            [self.compiler(), "-shared", *map(str, objects.values()), "-o", str(target), "-lpthread"], f"link of {name}"
        )
        return target

    def faulty(self, fault: Fault) -> Path:
        """The module with `fault` in it."""
        units = self.units_of(fault)
        tree = self.tree(fault)
        try:
            return self.module(fault.name, {unit: self.compile(unit, tree, fault.flags) for unit in units})
        finally:
            shutil.rmtree(tree, ignore_errors=True)


def edited(text: str, fault: Fault) -> str:
    """`text` with the fault in it; BuildError unless what it looks for occurs exactly once."""
    count = text.count(fault.find)
    if count != 1:
        raise BuildError(
            f"{fault.name}: its text occurs {count} times in {fault.file}, not once; fit the fault to the kernel"
        )
    return text.replace(fault.find, fault.put)


def run(command: list[str], what: str) -> None:
    """Runs a build step; BuildError with the end of its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{what} failed: {(done.stdout + done.stderr)[-2000:]}")
