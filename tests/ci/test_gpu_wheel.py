"""The wheels of code objects are of octavo's own version, and the extras ask for that one."""

from __future__ import annotations

from ci.gpu import ROOT
from ci.gpu_wheel import NAMES, version


def test_extras_ask_for_kernels_of_this_version() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for kind in NAMES:
        assert f'"octavo-{kind}=={version()}"' in text, f"the extra {kind} asks for another version than {version()}"
