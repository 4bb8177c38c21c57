"""Which files of a hub repository are fetched, without a network: the library's two calls are replaced."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
import pytest

from octavo.engine.errors import ModelError
from octavo.engine.loading.hub import choose_files, model_from_hub

GGUFS = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q8_0.gguf", "big-F16-00001-of-00002.gguf", "big-F16-00002-of-00002.gguf"]
EXTRAS = ["README.md", "mmproj-F16.gguf", "x.imatrix.gguf"]


@pytest.mark.parametrize(
    ("choice", "files"),
    [
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("q8_0", ["m.Q8_0.gguf"]),
        ("F16", ["big-F16-00001-of-00002.gguf", "big-F16-00002-of-00002.gguf"]),
        ("m-Q4_K_S.gguf", ["m-Q4_K_S.gguf"]),
        ("big-F16-00001-of-00002.gguf", ["big-F16-00001-of-00002.gguf", "big-F16-00002-of-00002.gguf"]),
    ],
)
def test_a_choice_names_one_model(choice: str, files: list[str]) -> None:
    assert choose_files("o/n", GGUFS + EXTRAS, choice) == files


@pytest.mark.parametrize("choice", [None, "Q4_K", "Q5_0", "nope.gguf", "*", ".*"])
def test_what_is_not_clear_lists_the_choices(choice: str | None) -> None:
    with pytest.raises(ModelError, match=r"m-Q4_K_M\.gguf.*name one"):
        choose_files("o/n", GGUFS, choice)


def test_a_single_gguf_needs_no_choice_and_safetensors_win() -> None:
    assert choose_files("o/n", ["m.gguf", *EXTRAS], None) == ["m.gguf"]
    assert choose_files("o/n", ["model.safetensors", "m.gguf", "config.json"], None) == []


def test_a_repository_with_pickles_only_is_refused() -> None:
    with pytest.raises(ModelError, match="only pickled ones"):
        choose_files("o/n", ["pytorch_model.bin", "config.json"], None)


class _Hub:
    """Stands for the hub: a set of names, and what was asked of it."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names, self.calls = folder, names, []

    def list_repo_files(self, repo: str, revision: str | None = None) -> list[str]:
        self.calls.append(("list", repo, revision))
        return self.names

    def snapshot_download(self, repo, revision=None, allow_patterns=None, local_files_only=False) -> str:
        self.calls.append(("snapshot", repo, revision, local_files_only))
        for name in self.names:
            if not local_files_only and any(fnmatch(name, pattern) for pattern in allow_patterns):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(b"x")
        return str(self.folder)


def _hub(monkeypatch: pytest.MonkeyPatch, folder: Path, names: list[str]) -> _Hub:
    hub = _Hub(folder, names)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


def test_only_what_loading_needs_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["config.json", "model-1.safetensors", "model.safetensors.index.json", "tokenizer.json"]
    other = ["pytorch_model.bin", "modeling.py", "README.md", "onnx/model.onnx"]
    hub = _hub(monkeypatch, tmp_path, needed + other)
    assert model_from_hub("o/n", "abc", None) == tmp_path
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(needed)
    assert hub.calls == [("list", "o/n", "abc"), ("snapshot", "o/n", "abc", False)]


def test_one_gguf_is_fetched_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hub(monkeypatch, tmp_path, GGUFS)
    assert model_from_hub("o/n", None, "Q8_0") == tmp_path / "m.Q8_0.gguf"
    assert [p.name for p in tmp_path.iterdir()] == ["m.Q8_0.gguf"]


def test_offline_reads_the_local_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = _hub(monkeypatch, tmp_path, GGUFS)
    (tmp_path / "m.Q8_0.gguf").write_bytes(b"x")
    assert model_from_hub("o/n", None, "Q8_0", is_offline=True) == tmp_path / "m.Q8_0.gguf"
    assert all(call[0] == "snapshot" and call[3] for call in hub.calls)


def test_a_hub_that_cannot_be_asked_does_not_stop_a_model_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    hub = _hub(monkeypatch, tmp_path, GGUFS)
    monkeypatch.setattr(hub, "list_repo_files", fail)
    with pytest.raises(ModelError, match="no route to host"):
        model_from_hub("o/n", None, "Q8_0")
    (tmp_path / "m.Q8_0.gguf").write_bytes(b"x")
    assert model_from_hub("o/n", None, "Q8_0") == tmp_path / "m.Q8_0.gguf"
    assert "no route to host" in caplog.text and "fetched before" in caplog.text
    assert all(call[3] for call in hub.calls)


def test_the_librarys_errors_become_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host\nsecond line")

    monkeypatch.setattr(_hub(monkeypatch, tmp_path, GGUFS), "list_repo_files", fail)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match=r"cannot get o/n from the hub: OSError: no route to host;") as caught:
        model_from_hub("o/n", None, None)
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"o/n is not in the hub's cache .* run `octavo pull o/n` once"):
        model_from_hub("o/n", None, None, is_offline=True)
    with pytest.raises(ModelError, match=r"run `octavo pull o/n@v2:Q8_0` once"):
        model_from_hub("o/n", "v2", "Q8_0", is_offline=True)
