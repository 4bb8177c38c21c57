"""Packs code objects as wheels of data, dist/octavo_{rocm,cuda}-*.whl: `python -m ci.gpu_wheel [rocm] [cuda]`.

Each holds one package (octavo_rocm, octavo_cuda) with a folder per chip, has the version of octavo itself, and needs nothing. It
is then installed into an empty environment and asked for every chip's table of kernels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from ci.gpu import HOME, ROOT, TARGETS, build, compile_all, missing

MAX_WHEEL_MB = 40
NAMES = {"rocm": "AMD", "cuda": "NVIDIA"}
PROJECT = """[build-system]
requires = ["scikit-build-core>=1.0"]
build-backend = "scikit_build_core.build"

[project]
name = "octavo-{kind}"
version = "{version}"
description = "Octavo's kernels for GPUs of {vendor}, as code objects"
requires-python = ">=3.10"
license = "Apache-2.0"

[tool.scikit-build]
wheel.cmake = false
wheel.py-api = "py3"
wheel.packages = ["octavo_{kind}"]
"""
PROBE = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
folder = Path(find_spec(sys.argv[1]).submodule_search_locations[0])
for table in sorted(folder.glob("*/kernels.json")):
    rows = json.loads(table.read_text())
    assert rows and all((table.parent / row["file"]).stat().st_size for row in rows), table
    print(table.parent.name, len(rows))
"""


def version() -> str:
    """Of octavo, as pyproject.toml has it."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def pack(kind: str) -> Path:
    """Builds what is missing and writes the wheel."""
    compile_all([target for target in TARGETS if target.kind == kind])
    project = HOME / f"wheel/octavo-{kind}"
    shutil.rmtree(project, ignore_errors=True)
    package = project / f"octavo_{kind}"
    package.mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT.format(kind=kind, version=version(), vendor=NAMES[kind]))
    (package / "__init__.py").write_text(f'"""Code objects of Octavo for GPUs of {NAMES[kind]}."""\n')
    for target in TARGETS:
        if target.kind == kind:
            folder = build(target)
            names = ["kernels.json", *(file.name for file in folder.glob("*.co"))]
            (package / target.arch).mkdir()
            for name in names:
                shutil.copy(folder / name, package / target.arch / name)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w"]
    subprocess.run([*command, str(ROOT / "dist"), str(project)], check=True)
    return next((ROOT / "dist").glob(f"octavo_{kind}-{version()}-*.whl"))


def try_wheel(wheel: Path, kind: str) -> str:
    """What an environment with nothing but the wheel finds in it."""
    home = HOME / f"wheel/try-{kind}"
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", PROBE, f"octavo_{kind}"], capture_output=True, text=True, cwd=home, env=clean
    )
    if done.returncode:
        raise SystemExit(f"{wheel.name}: {done.stderr[-400:]}")
    return "; ".join(f"{arch} {count} kernels" for arch, count in map(str.split, done.stdout.splitlines()))


def main() -> None:
    kinds = sys.argv[1:] or list(NAMES)
    if {"-h", "--help"} & {*kinds}:
        print(__doc__)
        return
    for kind in kinds:
        if kind not in NAMES:
            raise SystemExit(f"unknown kind {kind!r}; known are {', '.join(NAMES)}")
        if why := missing(kind):
            print(f"octavo-{kind}: not built: {why}")
            continue
        wheel = pack(kind)
        megabytes = wheel.stat().st_size / 1e6
        if megabytes > MAX_WHEEL_MB:
            raise SystemExit(f"{wheel.name} has {megabytes:.1f} MB, {MAX_WHEEL_MB} are allowed")
        print(f"{wheel.name}: {megabytes:.2f} MB; {try_wheel(wheel, kind)}")


if __name__ == "__main__":
    main()
