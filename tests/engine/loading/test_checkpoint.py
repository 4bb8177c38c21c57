"""A checkpoint counts what the model uses, joins split files, and gives pages back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.gguf_writer import GGUFWriter


def _gguf(path: Path, tensors: dict[str, int], **keys: int) -> Path:
    writer = GGUFWriter()
    for key, value in keys.items():
        writer.add(key.replace("_", "."), value)
    for name, value in tensors.items():
        writer.add_tensor(name, "f32", (2, 4), np.full(8, value, np.float32).view(np.uint8))
    writer.write(path)
    return path


def test_raw_gives_format_shape_and_bytes(tmp_path: Path) -> None:
    with Checkpoint.open(_gguf(tmp_path / "m.gguf", {"a": 1, "b": 2})) as checkpoint:
        form, shape, raw = checkpoint.raw("b")
        assert (checkpoint.kind, form, shape, raw.view("<f4").tolist()) == ("gguf", "f32", (2, 4), [2.0] * 8)
        assert list(checkpoint) == ["a", "b"] and "a" in checkpoint and checkpoint.num_bytes == 64


def test_a_tensor_nobody_claims_fails_the_load_by_name(tmp_path: Path) -> None:
    with Checkpoint.open(_gguf(tmp_path / "m.gguf", {f"t{i}": i for i in range(12)})) as checkpoint:
        checkpoint.claim("t0")
        checkpoint.claim("t0")
        assert len(checkpoint.unclaimed()) == 11
        with pytest.raises(ModelError, match=r"11 tensors that the model does not use: t1, .*t8 and 3 more"):
            checkpoint.finish()
        with pytest.raises(ModelError, match=r"2 tensors .*: t10, t11;"):
            checkpoint.finish(["t?"])
        checkpoint.finish(["t?", "t1*"])


def test_a_missing_tensor_is_named_with_near_names(tmp_path: Path) -> None:
    with Checkpoint.open(_gguf(tmp_path / "m.gguf", {"blk.0.attn_q.weight": 1})) as checkpoint:
        for call in (checkpoint.claim, checkpoint.raw, checkpoint.drop):
            with pytest.raises(ModelError, match=r"blk\.0\.attn_k\.weight.*near names: blk\.0\.attn_q\.weight"):
                call("blk.0.attn_k.weight")


def test_dropped_tensors_can_be_read_again(tmp_path: Path) -> None:
    with Checkpoint.open(_gguf(tmp_path / "m.gguf", {"a": 1, "b": 2})) as checkpoint:
        raw = checkpoint.raw("a")[2]
        checkpoint.prefetch()
        checkpoint.drop("a")
        checkpoint.drop("b")
        assert raw.view("<f4").tolist() == [1.0] * 8


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    pytest.skip("the kernel does not report file pages")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_dropping_behind_keeps_one_tensor_resident(tmp_path: Path) -> None:
    num_tensors, num_bytes = 8, 4 << 20
    values = np.ones((num_tensors, num_bytes // 4), np.float32)
    safetensors.numpy.save_file({f"t{i}": row for i, row in enumerate(values)}, tmp_path / "model.safetensors")
    peaks = {}
    for is_dropping in (True, False):
        with Checkpoint.open(tmp_path) as checkpoint:
            start, peak = _resident_bytes(), 0
            for name in checkpoint:
                assert checkpoint.raw(name)[2].view("<f4").sum() == num_bytes // 4
                peak = max(peak, _resident_bytes() - start)
                if is_dropping:
                    checkpoint.drop(name)
            peaks[is_dropping] = peak
    assert peaks[True] <= 2 * num_bytes
    assert peaks[False] >= (num_tensors - 1) * num_bytes  # the measure can fail


def test_split_gguf_files_are_one_checkpoint(tmp_path: Path) -> None:
    first = _gguf(tmp_path / "m-00001-of-00002.gguf", {"a": 1}, split_count=2, split_no=0)
    _gguf(tmp_path / "m-00002-of-00002.gguf", {"b": 2}, split_count=2, split_no=1)
    for path in (first, tmp_path):
        with Checkpoint.open(path) as checkpoint:
            assert list(checkpoint) == ["a", "b"] and len(checkpoint.stat_key()) == 2


def test_missing_and_wrong_split_parts_are_refused(tmp_path: Path) -> None:
    first = _gguf(tmp_path / "m-00001-of-00003.gguf", {"a": 1}, split_count=3, split_no=0)
    with pytest.raises(ModelError, match=r"2 missing: m-00002-of-00003.gguf, m-00003-of-00003.gguf"):
        Checkpoint.open(first)
    _gguf(tmp_path / "m-00002-of-00003.gguf", {"b": 1}, split_count=3, split_no=2)
    _gguf(tmp_path / "m-00003-of-00003.gguf", {"c": 1}, split_count=3, split_no=2)
    with pytest.raises(FormatError, match="not part 2 of 3"):
        Checkpoint.open(first)
    with pytest.raises(FormatError, match=r"split\.count"):
        Checkpoint.open(_gguf(tmp_path / "renamed.gguf", {"a": 1}, split_count=3, split_no=0))
    with pytest.raises(ModelError, match="give the first part"):
        Checkpoint.open(tmp_path / "m-00003-of-00003.gguf")


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    _gguf(tmp_path / "m-00001-of-00002.gguf", {"a": 1}, split_count=2, split_no=0)
    _gguf(tmp_path / "m-00002-of-00002.gguf", {"a": 2}, split_count=2, split_no=1)
    with pytest.raises(ModelError, match="'a' is in both"):
        Checkpoint.open(tmp_path)


def test_folders_are_searched_for_one_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no weights"):
        Checkpoint.open(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match="pickled"):
        Checkpoint.open(tmp_path)
    safetensors.numpy.save_file({"a": np.zeros(1, np.float32)}, tmp_path / "x.safetensors")
    with Checkpoint.open(tmp_path) as checkpoint:
        assert checkpoint.kind == "safetensors"
    safetensors.numpy.save_file({"b": np.zeros(1, np.float32)}, tmp_path / "y.safetensors")
    with pytest.raises(ModelError, match=r"several weights files: x\.safetensors, y\.safetensors"):
        Checkpoint.open(tmp_path)
    safetensors.numpy.save_file({"c": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with Checkpoint.open(tmp_path) as checkpoint:
        assert list(checkpoint) == ["c"]
    index = {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with Checkpoint.open(tmp_path) as checkpoint:
        assert list(checkpoint) == ["a", "b"]
    with pytest.raises(ModelError, match="not a weights file"):
        Checkpoint.open(tmp_path / "notes.txt")
