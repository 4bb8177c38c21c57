"""Every rule of the repository fires on a planted breach, stays quiet on sound code, and this checkout keeps them all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ci.rule_sets import objects
from ci.rule_sets.tree import Tree
from ci.rules import RULES, check

ROOT = Path(__file__).resolve().parents[2]
LONG = "def f():\n" + "    x = 1\n" * 61
ROW = "OCTAVO_KERNEL(add, avx2, AddArgs, kAddFields)\n"
UNIT = "namespace octavo::avx2 {\n}\n"

#: (rule, files of the tree, words of the message)
PLANTED = [
    ("small_files", {"tests/big.bin": "x" * 200_001}, "tests/big.bin: 200001 bytes"),
    ("no_words_left_behind", {"docs/a.md": "one\nTO" + "DO two\n"}, "docs/a.md:2: the word TO" + "DO"),
    ("no_words_left_behind", {"ci/x": "# FIX" + "ME later\n"}, "ci/x:1"),
    ("python_sizes", {"engine/long.py": "x = 1\n" * 401}, "engine/long.py: 401 lines"),
    ("python_sizes", {"tests/test_a.py": LONG}, "tests/test_a.py:1: f has 62 lines"),
    (
        "environment_in_one_place",
        {"engine/a.py": "import os\nos.environ['OCTAVO_ISA']\n"},
        "engine/a.py:2: reads OCTAVO_ISA",
    ),
    (
        "environment_in_one_place",
        {"quant/a.py": "import os\nos.getenv('OCTAVO_X', '')\n"},
        "quant/a.py:2: reads OCTAVO_X",
    ),
    (
        "environment_in_one_place",
        {"platforms/a.py": "import os\ndef f(n):\n    return os.environ.get(n)\n"},
        "reads n from",
    ),
    ("environment_in_one_place", {"engine/a.py": "import os\nb = 'OCTAVO_LOG' in os.environ\n"}, "reads OCTAVO_LOG"),
    (
        "no_platform_tests",
        {"engine/a.py": "def f(p):\n    return p.name == 'x86'\n"},
        "engine/a.py:2: compares with the platform 'x86'",
    ),
    ("no_platform_tests", {"engine/a.py": "def f(p):\n    return p in ('arm', 'rocm')\n"}, "'arm'"),
    ("no_platform_tests", {"quant/a.py": "match x:\n    case 'cuda':\n        pass\n"}, "'cuda'"),
    (
        "no_platform_tests",
        {"engine/a.py": "from octavo.platforms.cpu.module import load\n"},
        "imports octavo.platforms.cpu.module",
    ),
    ("no_code_from_data", {"engine/a.py": "import pickle\n"}, "imports pickle"),
    ("no_code_from_data", {"platforms/a.py": "def f():\n    import torch\n"}, "imports torch"),
    (
        "no_code_from_data",
        {"platforms/a.py": "from importlib import import_module\ntorch = import_module('torch')\n"},
        "imports torch",
    ),
    ("no_code_from_data", {"quant/a.py": "x = eval('1')\n"}, "calls eval"),
    (
        "no_code_from_data",
        {"engine/a.py": "import numpy as np\nnp.load('a', allow_pickle=True)\n"},
        "allow_pickle=True",
    ),
    ("no_code_from_data", {"src/octavo/a.py": "import subprocess\nsubprocess.run('ls', shell=True)\n"}, "shell=True"),
    (
        "import_direction",
        {"quant/a.py": "from octavo.platforms.ops import Ops\n"},
        "quant imports octavo.platforms.ops",
    ),
    (
        "import_direction",
        {"platforms/a.py": "import octavo.engine.scheduler\n"},
        "platforms imports octavo.engine.scheduler",
    ),
    (
        "import_direction",
        {"engine/runner.py": "from octavo.engine.server import app\n", "engine/server/app.py": ""},
        "engine.server.app",
    ),
    (
        "import_direction",
        {"engine/layers/a.py": "from ..models import llama\n", "engine/models/llama.py": ""},
        "engine.models.llama",
    ),
    (
        "import_direction",
        {"engine/kv/a.py": "from octavo.engine.runner import Runner\n"},
        "engine.kv imports octavo.engine.runner",
    ),
    ("pure_parts", {"engine/scheduler.py": "import numpy as np\n"}, "octavo.engine.scheduler imports numpy;"),
    (
        "pure_parts",
        {"engine/kv/a.py": "from octavo.engine.b import c\n", "engine/b.py": "import numpy\n"},
        "through octavo.engine.b",
    ),
    ("cpp_sizes", {"csrc_avx/a/a__avx2.cpp": UNIT + "// x\n" * 400}, "402 lines; at most 400"),
    ("cpp_sizes", {"csrc_common/vec/a.h": "// x\n" * 201}, "201 lines; at most 200"),
    ("cpp_sizes", {"csrc_common/exec/a.cpp": ""}, "headers only"),
    ("includes", {"csrc_avx/registry.cpp": "#include <torch/extension.h>\n"}, "includes torch/"),
    (
        "includes",
        {"csrc_avx/registry.cpp": "\n#include <pybind11/stl.h>\n"},
        "csrc_avx/registry.cpp:2: includes pybind11/",
    ),
    ("includes", {"csrc_common/vec/a.h": "#include <cuda_fp16.h>\n"}, "includes cuda"),
    ("kernel_library", {"csrc_avx/a/a__avx2.cpp": UNIT + "std::vector<int> x;\n"}, "std::vector"),
    (
        "kernel_library",
        {"csrc_common/ref/a.inl.h": "#include <algorithm>\nnamespace octavo::OCTAVO_ISA_NS {}\n"},
        "includes <algorithm>",
    ),
    ("namespaces", {"csrc_avx/a/a__avx512.cpp": "namespace octavo::avx2 {}\n"}, "octavo::avx512 is due"),
    ("namespaces", {"csrc_common/ref/a.inl.h": "namespace octavo::scalar {}\n"}, "octavo::OCTAVO_ISA_NS is due"),
    ("namespaces", {"csrc_avx/a/a__avx2.cpp": "void f() {}\n"}, "opens no namespace"),
    ("kernel_list", {"csrc_avx/kernels.inc": ROW}, "add at avx2: no file"),
    (
        "kernel_list",
        {"csrc_avx/kernels.inc": ROW + ROW, "csrc_avx/t/add__avx2.cpp": UNIT},
        "kernels.inc:2: add at avx2 is listed twice",
    ),
    (
        "kernel_list",
        {"csrc_avx/kernels.inc": ROW, "csrc_avx/t/add__avx2.cpp": UNIT, "csrc_avx/t/mul__avx2.cpp": UNIT},
        "no row",
    ),
]
OBJECT_RULES = {"weak_symbols", "exported_kernels", "baseline_instructions"}


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(("rule", "files", "message"), PLANTED, ids=[f"{p[0]}-{i}" for i, p in enumerate(PLANTED)])
def test_rule_fires_on_a_planted_breach(tmp_path: Path, rule: str, files: dict[str, str], message: str) -> None:
    problems = [p for p in check(plant(tmp_path, files)) if p.endswith(f"[{rule}]")]
    assert len(problems) == 1, problems
    assert message in problems[0]


def test_every_rule_has_a_planted_breach() -> None:
    assert {rule.__name__ for rule in RULES} == {p[0] for p in PLANTED} | OBJECT_RULES


def test_sound_code_breaks_no_rule(tmp_path: Path) -> None:
    sound = {
        "engine/config.py": "import os\nx = os.environ.get('OCTAVO_ISA')\n",
        "engine/scheduler.py": "import heapq\nfrom octavo.engine.kv import blocks\n",
        "engine/kv/blocks.py": "from octavo.engine.errors import OctavoError\n",
        "engine/errors.py": "class OctavoError(Exception):\n    '''eval of os.environ is only talked about here'''\n",
        "engine/loop.py": "import os\npath = os.environ.get('HOME', '')\nnames = {'x86': 1}\n",
        "platforms/select.py": "def f(name):\n    return name == 'x86'\n",
        "csrc_avx/bind.cpp": "#include <pybind11/pybind11.h>\n#include <vector>\n",
        "csrc_avx/kernels.inc": ROW + "OCTAVO_KERNEL(linear_q4_0, avx2, A, k)\nOCTAVO_KERNEL(rms_norm, avx2, A, k)\n",
        "csrc_avx/t/add__avx2.cpp": '#include "t/add.inl.h"  // std::vector stays out\n',
        "csrc_avx/t/add.inl.h": "#include <cstring>\nnamespace octavo::OCTAVO_ISA_NS { void f() { std::memcpy(0, 0, 0); } }\n",
        "csrc_avx/linear/linear_int__avx2.cpp": UNIT,
        "csrc_avx/norm/norm__avx2.cpp": UNIT,
        "csrc_common/ref/a.inl.h": "namespace octavo::OCTAVO_ISA_NS {\n}\n",
    }
    assert check(plant(tmp_path, sound)) == []


def test_docstrings_and_decorators_do_not_count_as_length(tmp_path: Path) -> None:
    text = 'def f():\n    """a\n' + "    line\n" * 60 + '    """\n    return 1\n'
    assert check(plant(tmp_path, {"engine/a.py": text})) == []


def build(root: Path, name: str, code: str, *flags: str) -> None:
    """Compiles `code` as the object of csrc_avx/`name` in a build folder that the rules look into."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or objects.missing_tools():
        pytest.skip(objects.missing_tools() or "no C++ compiler here")
    source = root / "csrc_avx" / name
    target = root / "build/dev/CMakeFiles/_avx.dir/csrc_avx" / f"{name}.o"
    plant(root, {f"csrc_avx/{name}": code, "csrc_avx/kernels.inc": ROW})
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-std=c++17", "-O1", *flags, "-c", str(source), "-o", str(target)], check=True)


SIGNATURE = "(const void*, const Step&, const Lane&)"
KERNEL = f"namespace octavo {{ struct Step; struct Lane; }}\nnamespace octavo::avx2 {{ void add{SIGNATURE} {{}} }}\n"
NOINLINE = "__attribute__((noinline, used)) inline int"


def found_by(rule: str, root: Path) -> list[str]:
    return [p for p in check(root) if p.endswith(f"[{rule}]")]


def test_weak_symbol_outside_its_level_is_found(tmp_path: Path) -> None:
    build(
        tmp_path, "t/add__avx2.cpp", KERNEL + f"namespace octavo {{ {NOINLINE} shared() {{ return 1; }} }}\n", "-mavx2"
    )
    assert "add__avx2.cpp.o: weak symbol octavo::shared()" in found_by("weak_symbols", tmp_path)[0]


def test_weak_symbol_of_its_own_level_is_allowed(tmp_path: Path) -> None:
    build(
        tmp_path,
        "t/add__avx2.cpp",
        KERNEL + f"namespace octavo::avx2 {{ {NOINLINE} own() {{ return 1; }} }}\n",
        "-mavx2",
    )
    assert check(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (KERNEL.replace("add", "mul"), "mul at avx2 has no row"),
        (KERNEL.replace("octavo::avx2", "octavo::avx512"), "a kernel of another level"),
        (KERNEL.replace("add", "mul"), "add at avx2 is in no built object"),
    ],
)
def test_kernels_that_are_built_and_kernels_that_are_listed_must_agree(tmp_path: Path, code: str, message: str) -> None:
    build(tmp_path, "t/add__avx2.cpp", code, "-mavx2")
    assert any(message in p for p in found_by("exported_kernels", tmp_path))


@pytest.mark.parametrize("name", ["registry.cpp", "t/add__scalar.cpp"])
def test_newer_instruction_in_a_baseline_object_is_found(tmp_path: Path, name: str) -> None:
    code = "float f(float* x) { float s = 0; for (int i = 0; i < 64; ++i) s += x[i] * x[i]; return s; }\n"
    build(tmp_path, name, code, "-O3", "-march=x86-64-v2")
    assert found_by("baseline_instructions", tmp_path) == []
    build(tmp_path, name, code, "-O3", "-march=x86-64-v3")
    assert "built for x86-64-v2 alone" in found_by("baseline_instructions", tmp_path)[0]


ARM_CODE = {
    "a dot product": ("sdot v0.4s, v1.16b, v2.16b", "sdot"),
    "a bfloat16 product": ("bfmlalb v0.4s, v1.8h, v2.8h", "bfmlalb"),
    "an atomic": ("ldadd x0, x1, [x2]", "ldadd"),
    "float16 arithmetic": ("fadd v0.8h, v1.8h, v2.8h", "fadd"),
    "scalable vectors": ("add z0.s, z1.s, z2.s", "add"),
    "bit fields, integer halves and conversions": (
        "bfi x0, x1, #3, #4\n add v0.8h, v1.8h, v2.8h\n fcvtl v0.4s, v1.4h",
        "",
    ),
}


@pytest.mark.parametrize("what", ARM_CODE)
def test_newer_instruction_in_an_arm_baseline_object_is_found(tmp_path: Path, what: str) -> None:
    code, wanted = ARM_CODE[what]
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None or objects.missing_tools(objects.ARM):
        pytest.skip("no compiler for aarch64: apt install g++-aarch64-linux-gnu")
    source = tmp_path / "csrc_neon/registry.cpp"
    target = tmp_path / "build/dev/CMakeFiles/_neon.dir/csrc_neon/registry.cpp.o"
    plant(tmp_path, {"csrc_neon/registry.cpp": f'void f() {{ asm volatile("{code!r}"); }}\n'.replace("'", "")})
    plant(tmp_path, {"csrc_neon/kernels.inc": ""})
    target.parent.mkdir(parents=True)
    flags = ["-march=armv8.2-a+dotprod+bf16+fp16+sve", "-c", str(source), "-o", str(target)]
    subprocess.run([compiler, *flags], check=True)
    assert objects.new_instructions(target, objects.ARM) == ([wanted] if wanted else [])
    assert len(found_by("baseline_instructions", tmp_path)) == bool(wanted)


def test_files_outside_git_do_not_count() -> None:
    assert not any(path.startswith((".venv/", "build/")) for path in Tree(ROOT).paths)
