"""What all tests share: child processes find the package under test, and `--native-module FILE` puts another build under test.

That option is one place for planted faults (tests/faults) and other compilers (ci/matrix): the file is loaded under the name of
this machine's native module before any test module is imported, so nobody else has to choose. Child processes keep the
installed one.

Drawn examples are the same in every run, so that a change is not refused for another one's rare case; the search for
such cases is `pytest --hypothesis-profile default`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest
from hypothesis import settings

SOURCE = Path(__file__).resolve().parents[1] / "src"
NATIVE = "octavo._neon" if platform.machine() in ("aarch64", "arm64") else "octavo._avx"
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def child_processes_find_octavo() -> None:
    """pytest's own path is not inherited; a checkout that is not installed needs this one."""
    parts = [str(SOURCE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(parts))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--native-module", type=Path, metavar="FILE", help=f"a build of {NATIVE} to test instead of the own one"
    )


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--native-module")
    if file is not None:
        load_as_native(file.resolve())


def load_as_native(file: Path) -> None:
    """Makes `file` the native module of this process."""
    import octavo

    spec = importlib.util.spec_from_file_location(NATIVE, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise pytest.UsageError(f"--native-module {file}: no such extension module; build one with ci/dev-build")
    if NATIVE in sys.modules:
        raise pytest.UsageError(f"--native-module {file}: {NATIVE} was already loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NATIVE] = module
    spec.loader.exec_module(module)
    setattr(octavo, NATIVE.rpartition(".")[2], module)


def pytest_report_header(config: pytest.Config) -> list[str]:
    file = config.getoption("--native-module")
    return [f"native module: {file}"] if file else []
