"""What real Arm processors report is read as the right feature bits; compiled for the machine at hand, for it is plain code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def names_in_order(text: str) -> dict[str, int]:
    """Name -> bit."""
    return {name: bit for bit, name in enumerate(text.split())}


#: names of /proc/cpuinfo -> their bits (arch/arm64/include/uapi/asm/hwcap.h)
HWCAP = names_in_order("""
    fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm
    jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat
    ilrcpc flagm ssbs sb paca pacg
""")
HWCAP2 = names_in_order("""
    dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm
    svef64mm svebf16 i8mm bf16 dgh rng bti
""")
V8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
V82 = f"{V8} atomics fphp asimdhp asimdrdm lrcpc dcpop"
V84 = f"{V82} asimddp jscvt fcma sha3 sha512 asimdfhm dit uscat ilrcpc flagm ssbs"
V2 = f"{V84} sve sb paca pacg dcpodp sve2 sveaes svepmull svebitperm svesha3 flagm2 frint svei8mm svebf16 i8mm bf16 dgh rng bti"

#: processor -> what its system reports, bytes of an SVE vector, the features we use
CHIPS = {
    "Raspberry Pi 4 (Cortex-A72)": ("fp asimd evtstrm crc32 cpuid", 0, ""),
    "Graviton (Cortex-A72)": (V8, 0, ""),
    "Raspberry Pi 5 (Cortex-A76)": (f"{V82} asimddp", 0, "dotprod"),
    "Graviton2, Ampere Altra (Neoverse N1)": (f"{V82} asimddp ssbs", 0, "dotprod"),
    "Kunpeng 920": (f"{V82} asimddp asimdfhm jscvt fcma", 0, "dotprod"),
    "Apple M1": (f"{V84} sb paca pacg dcpodp flagm2 frint", 0, "dotprod"),
    "Apple M2": (f"{V84} sb paca pacg dcpodp flagm2 frint i8mm bf16 bti", 0, "dotprod i8mm bf16"),
    "AmpereOne": (f"{V84} sb paca pacg dcpodp flagm2 frint i8mm bf16 rng bti", 0, "dotprod i8mm bf16"),
    "A64FX": (f"{V82} fcma sve", 64, "sve"),
    "Graviton3 (Neoverse V1)": (
        f"{V84} sve paca pacg dcpodp svei8mm svebf16 i8mm bf16 dgh rng", 32, "dotprod i8mm bf16 sve svei8mm svebf16",
    ),
    "Graviton4, Grace (Neoverse V2)": (V2, 16, "dotprod i8mm bf16 sve svei8mm svebf16"),
}  # fmt: skip
BITS = ("dotprod", "i8mm", "bf16", "sve", "svei8mm", "svebf16")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("arm")
    (folder / "probe.cpp").write_text(
        '#include "cpu_features.cpp"\n'
        'extern "C" uint64_t features(uint64_t a, uint64_t b, int64_t bytes) { return octavo::features_of(a, b, bytes); }\n'
    )
    built = folder / "probe.so"
    command = [
        compiler,
        "-std=c++17",
        "-shared",
        "-fPIC",
        f"-I{ROOT}/csrc_neon",
        str(folder / "probe.cpp"),
        "-o",
        built,
    ]
    subprocess.run(command, check=True)
    found = ctypes.CDLL(str(built))
    found.features.restype = ctypes.c_uint64
    found.features.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
    return found


def features(library: ctypes.CDLL, names: str, sve_bytes: int) -> set[str]:
    words = [sum(1 << table[name] for name in names.split() if name in table) for table in (HWCAP, HWCAP2)]
    assert all(name in HWCAP or name in HWCAP2 for name in names.split())
    found = library.features(*words, sve_bytes)
    return {name for i, name in enumerate(BITS) if found >> i & 1}


@pytest.mark.parametrize("chip", CHIPS)
def test_a_real_chip_has_the_features_that_its_system_reports(library: ctypes.CDLL, chip: str) -> None:
    names, sve_bytes, wanted = CHIPS[chip]
    assert features(library, names, sve_bytes) == set(wanted.split())


@pytest.mark.parametrize("sve_bytes", [0, 24, 48, 96, 128, 256])
def test_an_sve_length_that_no_kernel_was_verified_at_is_no_sve(library: ctypes.CDLL, sve_bytes: int) -> None:
    assert features(library, V2, sve_bytes) == {"dotprod", "i8mm", "bf16"}


def test_bits_are_those_that_the_levels_ask_for() -> None:
    text = (ROOT / "csrc_neon/cpu_features.h").read_text()
    for i, name in enumerate(("kDotProd", "kI8MM", "kBF16", "kSVE", "kSVEI8MM", "kSVEBF16")):
        assert f"{name} = 1u << {i}," in text
