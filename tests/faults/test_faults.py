"""The planted faults still fit the kernels they are planted in, and the runner tells a catch from a miss, a crash and a hang."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.faults import run
from tests.faults.build import ROOT, Builder, BuildError, edited, level_of
from tests.faults.fault import Fault, faults

from octavo.platforms.cpu.module import load

FAULTS = faults()
REQUIRED = {  # what the matrix promises to catch
    "dot32_even_and_odd_swapped",
    "k_tail_dropped",
    "denormals_kept_everywhere",
    "denormals_kept_by_helpers",
    "contraction_in_add",
    "window_one_too_wide",
    "bf16_truncated_not_rounded",
    "group_scales_applied_one_by_one",
    "softmax_segment_256",
    "dense_neighbour_row_read",
}


def test_names_are_unique_and_the_classic_faults_are_among_them() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert set(names) >= REQUIRED
    assert {f.name for f in FAULTS if f.is_quick} >= REQUIRED - {"contraction_in_add"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_fits_its_kernel_and_names_a_test_that_exists(fault: Fault) -> None:
    if fault.file:
        assert edited((ROOT / fault.file).read_text(), fault) != (ROOT / fault.file).read_text()
    else:
        assert fault.units and fault.flags and all((ROOT / unit).is_file() for unit in fault.units)
    path, _, name = fault.test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("text", ["", "x x"])
def test_a_fault_that_no_longer_fits_stops_the_run(text: str) -> None:
    with pytest.raises(BuildError, match="occurs"):
        edited(text, Fault("old", "f", "x", "y", "t"))


def test_only_what_a_fault_reaches_is_rebuilt(tmp_path: Path) -> None:
    for name, text in {
        "csrc_common/vec/a.h": "",
        "csrc_common/vec/b.h": '#include "a.h"\n',
        "csrc_avx/t/one__avx2.cpp": '#include "vec/b.h"\n',
        "csrc_avx/t/one__avx512.cpp": '#include "vec/b.h"\n',
        "csrc_avx/t/two__avx2.cpp": "",
        "csrc_avx/bind.cpp": '#include "vec/a.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    builder = Builder.__new__(Builder)
    builder.root, builder.folder = tmp_path, tmp_path / "build"
    builder.commands = {str(p.relative_to(tmp_path)): [] for p in tmp_path.rglob("*.cpp")}
    found = builder.units_of(Fault("f", "csrc_common/vec/a.h", "", "", "t"))
    assert sorted(found) == ["csrc_avx/bind.cpp", "csrc_avx/t/one__avx2.cpp"]
    with pytest.raises(BuildError, match="no unit"):
        builder.units_of(Fault("f", "gone.h", "", "", "t"))


def test_a_build_tells_which_levels_run_here() -> None:
    module = load("octavo._avx")
    levels = run.runnable_levels(Path(module.__file__))
    assert levels == {level for _, _, level, need, _ in module.kernels() if not need & ~module.available_features()}
    assert {"scalar", "avx2"} <= levels


def test_level_is_the_part_of_the_name_behind_two_underscores() -> None:
    assert (level_of("csrc_avx/norm/norm__avx2.cpp"), level_of("csrc_avx/bind.cpp")) == ("avx2", "")


OUTCOMES = {
    "def test_it(): assert 1 + 1 == 3": "failed",
    "def test_it(): assert True": "passed",
    "def test_it(): raise KeyError('x')": "broken",
    "import nothing_of_this_name\ndef test_it(): pass": "broken",
    "import os\ndef test_it(): os.abort()": "broken",
    "import pytest\ndef test_it(): pytest.skip('not here')": "broken",
}


@pytest.mark.parametrize("code", OUTCOMES, ids=list(OUTCOMES.values()))
def test_only_a_failed_assertion_is_a_catch(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(code)
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--native-module')")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    found, detail = run.pytest_outcome(Path("m.so"), ["test_it.py"], "it", tmp_path)
    assert found == OUTCOMES[code], detail
