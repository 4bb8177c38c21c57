"""What ci.arm decides without a root: the wheel's tag, its contents, what is missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from ci import arm


def test_the_tag_follows_the_newest_glibc_symbol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm, "HOME", tmp_path)
    wheel = tmp_path / "octavo-0.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        out.writestr("octavo/_neon.so", b"")
    monkeypatch.setattr(arm, "run", lambda command: "GLIBC_2.17 a\nGLIBC_2.34 b\nGLIBCXX_3.4.30 c\nGLIBC_2.4 d\n")
    assert arm._glibc_minor(wheel) == 34
    monkeypatch.setattr(arm, "run", lambda command: "no versions")
    assert arm._glibc_minor(wheel) == 17


@pytest.mark.parametrize("names", [[], ["octavo/_avx.so"], ["octavo/_neon.so", "octavo/_avx.so"]])
def test_a_wheel_without_its_module_alone_is_refused(tmp_path: Path, names: list[str]) -> None:
    wheel = tmp_path / "octavo-0-cp311-cp311-manylinux_2_34_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name in names:
            out.writestr(name, b"")
    with pytest.raises(SystemExit, match="one octavo/_neon module is due"):
        arm.check_wheel(wheel)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm.shutil, "which", lambda tool: None if tool == "debootstrap" else tool)
    assert arm.missing() == "apt install debootstrap"
