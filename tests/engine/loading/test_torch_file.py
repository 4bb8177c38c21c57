"""Tensors of a file of torch.save are read, its pickle is not run: what a state dict does not need is refused by name."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden import tiny_tokens

from octavo.engine.errors import FormatError
from octavo.engine.loading.torch_file import read_torch_file
from octavo.engine.models.raw import floats_of
from octavo.platforms.types import RawTensor

#: written by torch 2.13: {"weight": Parameter, "half": float16, "rounded": bfloat16, "part": a view} of arange(24) / 8 [3, 8]
FILE = Path(tiny_tokens.__file__).with_name("linear.pt")


def floats(file: Path) -> dict[str, NDArray[np.float32]]:
    return {name: np.array(floats_of(RawTensor(name, *stored))) for name, stored in read_torch_file(file).items()}


def archive(file: Path, data: bytes, **storages: bytes) -> Path:
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("x/data.pkl", data)
        for key, raw in storages.items():
            made.writestr(f"x/data/{key[1:]}", raw)
    return file


def test_what_torch_writes() -> None:
    found = floats(FILE)
    base = np.arange(24, dtype=np.float32).reshape(3, 8) / 8
    assert [form for form, _, _ in read_torch_file(FILE).values()] == ["f32", "f16", "bf16", "f32"]
    for name in ("weight", "half", "rounded"):
        assert np.array_equal(found[name], base)
    assert np.array_equal(found["part"], base[1:2])


def test_what_the_test_checkpoints_hold_is_read_alike(tmp_path: Path) -> None:
    tensors = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.ones(2, np.float32)}
    tiny_tokens._write_pt(tmp_path / "a.pt", tensors)
    found = floats(tmp_path / "a.pt")
    assert all(np.array_equal(found[name], values) for name, values in tensors.items())


class Evil:
    """Would write a file when unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_is_called(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "written"
    file = archive(tmp_path / "evil.pt", pickle.dumps({"weight": Evil(target)}, protocol=protocol))
    with pytest.raises(FormatError, match=r"evil\.pt is not read: .*; save its tensors as evil\.safetensors"):
        read_torch_file(file)
    assert not target.exists()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "description is broken"),
        (b"\x80\x02}.", None),
        (b"\x80\x02K\x01.", "other things than tensors by name"),
        (b"\x80\x02}X\x01\x00\x00\x00aK\x01s.", "other things than tensors by name"),
        (b"\x80\x02cos\nsystem\n(tR.", "it would call os system"),
        (b"\x80\x02h\x07.", "description is broken"),
        (b"\x80\x02R.", "description is broken"),
        (b"\x80\x02t.", "description is broken"),
        (b"\x80\x02cos\nsystem\nQ.", "description is broken"),
        (b"\x80\x02ios\nsystem\n.", "."),
    ],
)
def test_broken_descriptions(data: bytes, text: str | None, tmp_path: Path) -> None:
    file = archive(tmp_path / "a.pt", data)
    if text is None:
        assert read_torch_file(file) == {}
        return
    with pytest.raises(FormatError, match=text):
        read_torch_file(file)


def test_archives_that_are_none_or_do_not_hold_what_they_say(tmp_path: Path) -> None:
    plain = tmp_path / "plain.pt"
    plain.write_bytes(b"text")
    with pytest.raises(FormatError, match=r"not a file of torch\.save"):
        read_torch_file(plain)
    with pytest.raises(FormatError, match=r"not a file of torch\.save"):
        read_torch_file(tmp_path / "missing.pt")
    data = (
        b"\x80\x02}(X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n%s\nX\x01\x00\x00\x000"
        b"X\x03\x00\x00\x00cpuK\x02tQK\x00(K\x02t(K\x01t\x89ccollections\nOrderedDict\n)RtRu."
    )
    good = archive(tmp_path / "good.pt", data % b"FloatStorage", _0=np.ones(2, np.float32).tobytes())
    assert floats(good)["a"].tolist() == [1.0, 1.0]
    short = archive(tmp_path / "short.pt", data % b"FloatStorage", _0=b"1234")
    with pytest.raises(FormatError, match="tensor a goes beyond its storage"):
        read_torch_file(short)
    with pytest.raises(FormatError, match="holds no data/0"):
        read_torch_file(archive(tmp_path / "none.pt", data % b"FloatStorage"))
    with pytest.raises(FormatError, match="served are FloatStorage, HalfStorage, BFloat16Storage"):
        read_torch_file(archive(tmp_path / "long.pt", data % b"LongStorage"))
