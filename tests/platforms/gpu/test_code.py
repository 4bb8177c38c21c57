"""Tables of kernels and code objects as they come from a wheel: damaged ones are told in one line, before a driver sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from ci.gpu import digest

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu import code
from octavo.platforms.gpu.code import mismatch, open_module
from octavo.platforms.gpu.device import DeviceFacts
from octavo.platforms.gpu.rows import digest_of, read_rows

ROW: dict[str, Any] = {
    "op": "linear_bf16", "level": "simt", "threads": 256, "tile_rows": 16, "tile_outs": 64, "args_bytes": 24,
    "fields": [["x", 0, "pointer"], ["n", 8, "i64"], ["scale", 16, "f32"]], "file": "linear.co", "digest": "",
}  # fmt: skip
IMAGE = b"\x7fELF and what follows"


class Device:
    """What remembers code objects that it was given."""

    facts = DeviceFacts("rocm", 0, "a chip", "gfx942", 64, 4, 65536, 1 << 34, "", "")

    def __init__(self) -> None:
        self.loaded: list[bytes] = []

    def load(self, image: bytes) -> Any:
        self.loaded.append(image)
        return object()

    def alloc(self, num_bytes: int) -> int:
        return 4096

    def pinned(self, num_bytes: int) -> bytearray:
        return bytearray(num_bytes)

    def free(self, address: int) -> None: ...


def wheel(folder: Path, table: Any, image: bytes | None = IMAGE) -> Device:
    """Opens a folder of this table and this code object."""
    (folder / "kernels.json").write_text(table if isinstance(table, str) else json.dumps(table))
    if image is not None:
        (folder / "linear.co").write_bytes(image)
    device: Any = Device()
    try:
        open_module(device, folder)
    except PlatformError as error:
        assert not device.loaded, "a driver was given one"
        assert "\n" not in str(error) and str(error).endswith("; reinstall octavo-rocm")
        raise
    return device  # type: ignore[no-any-return]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


def test_a_whole_wheel_is_loaded(tmp_path: Path) -> None:
    assert wheel(tmp_path, [ROW | {"digest": digest_of(IMAGE)}]).loaded == [IMAGE]
    assert digest_of(IMAGE) == digest(IMAGE) and len(digest(IMAGE)) == 32


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "cannot be read: Expecting value"), ("[", "cannot be read"), ("[7]", "cannot be read"),
        ([], "it lists no kernel"),
        ([without("fields")], "a kernel lacks 'fields'"),
        ([without("threads")], "'threads'"),
        ([ROW | {"fields": [["x", 0]]}], "'kind'"),
        ([ROW | {"new": 1}], "'new'"),
        ([ROW | {"level": "warp"}], "linear_bf16__warp is of level warp, levels are simt, mma"),
        ([ROW | {"threads": 0}], r"linear_bf16__simt: sizes of \(0, "),
        ([ROW | {"threads": "64"}], "sizes of"),
        ([ROW | {"tile_rows": 0}], "sizes of"),
        ([ROW | {"tile_rows": -16}], "sizes of"),
        ([ROW | {"tile_outs": 0}], "no outputs"),
        ([ROW | {"args_bytes": 8}], "argument n, i64 at 8 of 8 bytes"),
        ([ROW | {"fields": [["x", -8, "pointer"]]}], "argument x, pointer at -8"),
        ([ROW | {"fields": [["x", 0, "u128"]]}], "argument x, u128 at 0"),
        ([ROW | {"file": "../linear.co"}], "outside the folder"),
        ([ROW | {"file": "gone.co"}], r"the code object .*/gone\.co cannot be read: No such file or directory"),
        ([ROW, ROW | {"level": "triton", "file": "gone.co"}], r"gone\.co cannot be read"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_one_clear_line(table: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=words):
        wheel(tmp_path, table)


@pytest.mark.parametrize(
    "damage",
    [lambda image: image[:9], lambda image: b"", lambda image: image[:-1] + b"X", lambda image: image + b"0"],
    ids=["cut", "empty", "changed", "longer"],
)
def test_a_damaged_code_object_reaches_no_driver(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    rows = [ROW | {"digest": digest(IMAGE)}]
    with pytest.raises(PlatformError, match=r"linear\.co \(\d+ bytes\) is not the one that its table was written for"):
        wheel(tmp_path, rows, damage(IMAGE))
    with pytest.raises(PlatformError, match="cannot be read"):
        (tmp_path / "linear.co").unlink()
        wheel(tmp_path, rows, None)


def test_tables_of_this_build_are_whole() -> None:
    """The host's, which has every kernel."""
    from ci.gpu import missing
    from tests.platforms.gpu.host_device import folder

    if missing("host"):
        pytest.skip(missing("host"))
    assert len(read_rows((folder(64) / "kernels.json").read_text())) > 100


def test_code_objects_of_another_version_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("octavo.__version__", "0.2.0")
    monkeypatch.setattr(code, "version", lambda name: {"octavo-rocm": "0.2.0"}[name])
    assert mismatch("rocm") == ""
    monkeypatch.setattr(code, "version", lambda name: "0.1.0")
    assert mismatch("cuda") == "octavo-cuda 0.1.0 is not of this octavo, 0.2.0; pip install 'octavo-cuda==0.2.0'"
    monkeypatch.setattr(code, "version", none)
    assert mismatch("cuda") == ""
