"""Native modules: the emulated one, where it is built, loads beside the real one, so that no level goes untested unseen."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load

EMULATED = "octavo._avx_emulated"


@pytest.mark.skipif(not find_spec(EMULATED), reason=f"{EMULATED} is not built")
@pytest.mark.parametrize("names", [("octavo._avx", EMULATED), (EMULATED, "octavo._avx")])
def test_both_modules_load_in_one_process(names: tuple[str, str]) -> None:
    program = (
        "import sys; from importlib import import_module\n"
        "for module in map(import_module, sys.argv[1:]):\n"
        "    arena, team = module.Arena(4096), module.Team(2, 0)\n"
        "    assert arena.bytes >= 4096 and len(memoryview(arena)) == arena.bytes and team.num_threads == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(PlatformError, match=r"octavo\._nowhere cannot be loaded: .*reinstall octavo"):
        load("octavo._nowhere")
