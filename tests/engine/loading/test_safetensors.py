"""safetensors: sound files are read without a copy, every unsound header is one typed error, pickles are refused."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.safetensors import SafetensorsFile, open_shards


def _file(header: Any, data: int = 0, length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + bytes(data)


def _entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# name -> (content, words, field)
HOSTILE: dict[str, tuple[bytes, str, str]] = {
    "empty file": (b"", "0 bytes", "header_length"),
    "7 bytes": (b"\0" * 7, "7 bytes", "header_length"),
    "length 0": (_file(b"", 8), "does not fit", "header_length"),
    "length past the end": (_file({}, 0, 3), "does not fit", "header_length"),
    "length 2^63": (_file({}, 8, 1 << 63), "does not fit", "header_length"),
    "length 2^64-1": (_file({}, 8, (1 << 64) - 1), "does not fit", "header_length"),
    "not an object": (_file(b"[1, 2]  "), "'{'", "header"),
    "not JSON": (_file(b"{'a': 1}"), "JSON table", "header"),
    "not UTF-8": (_file(b'{"\xff": 1}'), "JSON table", "header"),
    "nested 100000 deep": (_file(b'{"a":' + b"[" * 100_000), "JSON table", "header"),
    "entry a number": (_file({"w": 3}, 8), "JSON table", "header"),
    "no dtype": (_file({"w": {"shape": [2], "data_offsets": [0, 8]}}, 8), "exactly", "w"),
    "extra field": (_file({"w": {**_entry(), "x": "y"}}, 8), "exactly", "w"),
    "unknown dtype": (_file({"w": _entry("F99")}, 8), "dtype 'F99'", "w"),
    "negative size": (_file({"w": _entry(shape=[-2])}, 8), "shape [-2]", "w"),
    "17 dims": (_file({"w": _entry(shape=[1] * 17, offsets=[0, 4])}, 4), "shape", "w"),
    "huge shape": (_file({"w": _entry(shape=[1 << 62, 1 << 62])}, 8), "takes", "w"),
    "shape does not match": (_file({"w": _entry(shape=[3])}, 8), "takes 12 bytes", "w"),
    "past the end": (_file({"w": _entry(offsets=[0, 8])}, 7), "not a range", "w"),
    "reversed": (_file({"w": _entry(offsets=[8, 0])}, 8), "not a range", "w"),
    "three offsets": (_file({"w": _entry(offsets=[0, 4, 8])}, 8), "not a range", "w"),
    "negative offset": (_file({"w": _entry(offsets=[-8, 0])}, 8), "not a range", "w"),
    "overlap": (_file({"a": _entry(), "b": _entry(offsets=[4, 12])}, 12), "overlap", "b"),
    "hole": (_file({"a": _entry(), "b": _entry(offsets=[12, 20])}, 20), "cover 16 of 20", "data_offsets"),
    "trailing bytes": (_file({"a": _entry()}, 9), "cover 8 of 9", "data_offsets"),
    "name twice": (
        _file(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
              b'"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}', 16),
        "cover 8 of 16", "data_offsets",
    ),
    "empty name": (_file({"": _entry()}, 8), "name is empty", "header"),
    "metadata of numbers": (_file({"__metadata__": {"a": [1]}}), "not a string", "__metadata__.a"),
}  # fmt: skip


def test_a_file_that_was_cut_short_is_named_and_suspected(tmp_path: Path) -> None:
    """What an interrupted download or copy leaves, wherever it stopped."""
    whole = _file({"a": _entry(), "b": _entry(offsets=[8, 16])}, 16)
    path = tmp_path / "x.safetensors"
    for size in (0, 7, 8, 40, len(whole) - 16, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"complete\?") as caught:
            SafetensorsFile.open(path)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_one_typed_error(case: str, tmp_path: Path) -> None:
    content, words, field = HOSTILE[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(FormatError) as caught:
        SafetensorsFile.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    times = []
    for _ in range(3):
        begin = time.process_time()
        with pytest.raises(FormatError):
            SafetensorsFile.open(path)
        times.append(time.process_time() - begin)
    assert words in str(caught.value) and caught.value.field == field
    assert caught.value.offset is not None and "\n" not in str(caught.value)
    assert min(times) < 0.05 and peak < 10_000_000


def test_files_of_the_safetensors_package_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b.c": rng.integers(0, 9, (7,), np.int64),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(2.5, np.float64),
    }
    safetensors.numpy.save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "np"})
    file = SafetensorsFile.open(tmp_path / "x.safetensors")
    assert file.metadata == {"format": "np"}
    assert {n: (i.format, i.shape) for n, i in file.tensors.items()} == {
        "a": ("f32", (3, 5)), "b.c": ("i64", (7,)), "empty": ("f16", (0, 4)), "scalar": ("f64", ()),
    }  # fmt: skip
    for name, values in tensors.items():
        assert bytes(file.data(name)) == values.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        file.data("a")[0] = 1


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "x.ckpt", "X.PKL"])
def test_pickles_are_refused_before_they_are_opened(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pickled checkpoint, which can run code"):
        SafetensorsFile.open(tmp_path / name)  # the file does not even exist


def _sharded(folder: Path) -> Path:
    safetensors.numpy.save_file({"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}, folder / "m-1.safetensors")
    safetensors.numpy.save_file({"c": np.ones(3, np.float32)}, folder / "m-2.safetensors")
    return _index(folder, {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"})


def _index(folder: Path, weight_map: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 28}, "weight_map": weight_map}))
    return path


def test_shards_are_opened_together(tmp_path: Path) -> None:
    files = open_shards(_sharded(tmp_path))
    assert [sorted(file.tensors) for file in files] == [["a", "b"], ["c"]]


def test_all_missing_shards_are_named_at_once(tmp_path: Path) -> None:
    index = _sharded(tmp_path)
    (tmp_path / "m-1.safetensors").unlink()
    (tmp_path / "m-2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"missing: m-1\.safetensors, m-2\.safetensors"):
        open_shards(index)


def test_an_index_that_lists_an_absent_tensor_is_refused(tmp_path: Path) -> None:
    _sharded(tmp_path)
    index = _index(tmp_path, {"a": "m-1.safetensors", "b": "m-1.safetensors", "zz": "m-2.safetensors"})
    with pytest.raises(ModelError, match="does not hold zz"):
        open_shards(index)


def test_a_shard_with_an_unlisted_tensor_is_refused(tmp_path: Path) -> None:
    _sharded(tmp_path)
    index = _index(tmp_path, {"a": "m-1.safetensors", "c": "m-2.safetensors"})
    with pytest.raises(ModelError, match=r"not place there, b"):
        open_shards(index)


@pytest.mark.parametrize("shard", ["../m-1.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "m.bin", "..", ""])
def test_shard_names_cannot_leave_the_folder(shard: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="plain name"):
        open_shards(_index(tmp_path, {"a": shard}))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}']
)
def test_an_unsound_index_is_a_format_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    with pytest.raises(FormatError, match="index"):
        open_shards(path)
