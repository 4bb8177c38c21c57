"""The portable platform: chosen only in its turn, announced once, the reference's tokens and bits, compiled code kept on disk."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.platforms import registry
from octavo.platforms.registry import choose_platform


def entry(name: str) -> registry.Entry:
    return next(e for e in registry.PLATFORMS if e.name == name)


needs_numba = pytest.mark.skipif(bool(entry("portable").probe()), reason=entry("portable").probe())


def test_it_stands_between_the_chips_kernels_and_the_reference() -> None:
    names = [e.name for e in registry.PLATFORMS]
    assert names.index("x86") < names.index("portable") < names.index("reference")


def test_without_numba_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert entry("portable").probe() == "numba is not installed: pip install numba"
    monkeypatch.setattr(registry, "PLATFORMS", (entry("portable"), entry("reference")))
    chosen = choose_platform(None, 1)
    assert chosen.platform.name == "reference"
    assert chosen.refused == (("portable", "numba is not installed: pip install numba"),)


def test_a_broken_numba_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "numba", None)
    assert entry("portable").probe().startswith("numba cannot be imported: ")


def test_numba_is_not_imported_by_another_platform() -> None:
    code = (
        "import sys\n"
        "from octavo.platforms.registry import choose_platform\n"
        "choose_platform('reference', 1)\n"
        "import octavo.platforms.portable\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@needs_numba
def test_it_announces_itself_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "octavo"):
        platform = choose_platform("portable", 2).platform
        platform.weights()
    assert len(caplog.records) == 1
    assert "portable platform" in caplog.text and "numba" in caplog.text
    assert (platform.name, platform.levels, platform.num_threads) == ("portable", ("numba",), 2)
    levels = {v.op: v.level for v in platform.variants()}
    assert (levels["linear"], levels["paged_attention"], levels["embedding"]) == ("numba", "numba", "reference")


CACHED = """
import json, sys, time
from pathlib import Path
from octavo.platforms.platform import CacheHome
from octavo.platforms.registry import choose_platform
choose_platform("portable", 1).platform.weights(CacheHome(Path(sys.argv[1]), b"m", b"m"))
import numpy as np
from octavo.platforms.portable.norms import rms_norm
x = np.ones((2, 8), np.float32)
rms_norm(x, x[0], True, np.float32(1e-6), x.copy())
stats = rms_norm.stats
print(json.dumps([sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


@needs_numba
def test_compiled_code_is_kept_in_the_cache_folder(tmp_path: Path) -> None:
    def run() -> list[int]:
        done = subprocess.run([sys.executable, "-c", CACHED, str(tmp_path)], capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    assert run() == [0, 1]
    assert list((tmp_path / "numba").rglob("*.nbi"))
    assert run() == [1, 0]


@needs_numba
@pytest.mark.parametrize("form", ["q4_1", "q8_0", "q4_k", "f32", "bf16"])
def test_linear_of_no_rows_gives_no_rows(form: str) -> None:
    """The head of a step runs the layers once more over no rows; block formats must bear that."""
    import numpy as np

    from octavo.platforms.portable.ops import PortableOps
    from octavo.platforms.portable.weights import PortableWeights
    from octavo.platforms.selftest.values import tensor

    weight = PortableWeights().linear([tensor("w", form, 20, 256)])
    assert PortableOps(None, None, 1).linear(np.zeros((0, 256), np.float32), weight).shape == (0, 20)
