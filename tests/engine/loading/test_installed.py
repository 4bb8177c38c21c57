"""Installed packages are read as `importlib.metadata` reads them."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from octavo.engine.loading.installed import installed, read_metadata


@pytest.mark.parametrize("name", ["pytest", "Pydantic.Core", "huggingface_hub"])
def test_files_and_requirements_are_those_of_the_standard_library(name: str) -> None:
    theirs = importlib.metadata.distribution(name)
    mine = installed(name, theirs.version)
    assert mine is not None and (mine.name, mine.version) == (theirs.metadata["Name"], theirs.version)
    assert mine.requires == tuple(theirs.requires or ())
    files = {Path(str(theirs.locate_file(file))) for file in theirs.files or () if ".dist-info" not in str(file)}
    assert {entry.path for entry in mine.entries} == {path for path in files if path.is_file()}
    some = mine.entries[0]
    with some.open() as file:
        assert some.path is not None and file.read() == some.path.read_bytes()
    assert installed(name, "0.0.1") is None


def dist_info(folder: Path, name: str, record: str | None, metadata: str = "Name: toy\nVersion: 1.0\n") -> None:
    info = folder / f"{name}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(metadata)
    if record is not None:
        (info / "RECORD").write_text(record)


def test_the_first_folder_of_the_path_counts_and_odd_names_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "no such"), str(tmp_path / "a"), str(tmp_path / "b")])
    for folder, version in (("a", "1.0"), ("b", "2.0")):
        record = '"toy/a, ""b"".gguf",sha256=x,1\ntoy/gone.gguf,,\ntoy-1.dist-info/RECORD,,\n'
        dist_info(tmp_path / folder, f"Toy_Model-{version}", record, f"Name: toy-model\nVersion: {version}\n")
        (tmp_path / folder / "toy").mkdir()
        (tmp_path / folder / "toy" / 'a, "b".gguf').write_text("x")
    found = installed("toy.model", None)
    assert found is not None and found.version == "1.0"
    assert [(str(e.name), e.num_bytes, e.path) for e in found.entries] == [
        ('toy/a, "b".gguf', 1, tmp_path / "a" / "toy" / 'a, "b".gguf')
    ]


def test_a_package_without_a_record_of_its_files_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    dist_info(tmp_path, "toy-1.0", None)
    dist_info(tmp_path, "toy_more-1.0", "")
    assert installed("toy", None) is None and installed("toy-more", None) is None and installed("to", None) is None


def test_headers_end_at_the_empty_line_and_continued_ones_are_no_keys() -> None:
    text = "Metadata-Version: 2.1\nname: Toy\nDescription: a\n  Version: 9\nRequires-Dist: a>1\nRequires-Dist: b\n\nVersion: 3\n"
    package = read_metadata(text, (), "other")
    assert (package.name, package.version, package.requires) == ("Toy", "0", ("a>1", "b"))
    assert read_metadata(text.replace("\n", "\r\n"), (), "other") == package
    assert read_metadata("", (), "other").name == "other"
