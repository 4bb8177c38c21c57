"""Headers that are right are read whole; headers that are wrong are one typed error, quickly and without memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest
from tests.engine.loading.raw_gguf import gguf, key_str, key_u32, preamble, tensor, text

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter

ALIGN = "general.alignment"
_ARRAY = struct.pack("<I", 9)


def _array(kind: int, count: int, payload: bytes = b"") -> bytes:
    return _ARRAY + struct.pack("<IQ", kind, count) + payload


# name -> (file content, words that the error must hold, field it must name)
HOSTILE: dict[str, tuple[bytes, str, str]] = {
    "9 dims": (gguf(tensors=(tensor("w", [1] * 9),), data=64), "9 dimensions", "w"),
    "4294967295 dims": (
        gguf(tensors=(text("w") + struct.pack("<IIQ", 0xFFFFFFFF, 0, 0),), data=64),
        "4294967295 dimensions",
        "w",
    ),
    "a dim of 0": (gguf(tensors=(tensor("w", [4, 0]),), data=64), "dimension is 0", "w"),
    "product overflows": (gguf(tensors=(tensor("w", [1 << 40, 1 << 40]),), data=64), "passes 2^63", "w"),
    "product wraps to small": (gguf(tensors=(tensor("w", [1 << 32, 1 << 32, 4]),), data=64), "passes 2^63", "w"),
    "alignment 0": (gguf(keys=(key_u32(ALIGN, 0),)), "alignment 0", ALIGN),
    "alignment 3": (gguf(keys=(key_u32(ALIGN, 3),)), "alignment 3", ALIGN),
    "alignment 2^30": (gguf(keys=(key_u32(ALIGN, 1 << 30),)), "alignment 1073741824", ALIGN),
    "alignment a string": (gguf(keys=(key_str(ALIGN, "32"),)), "alignment '32'", ALIGN),
    "string length 2^63": (
        gguf(keys=(text("k") + struct.pack("<IQ", 8, 1 << 63),), data=64),
        "string of 9223372036854775808 bytes",
        "k",
    ),
    "key length 2^63": (gguf(keys=(struct.pack("<Q", 1 << 63),), data=64), "string of 9223372036854775808", "key 0"),
    "name length 2^64-1": (gguf(tensors=(struct.pack("<Q", (1 << 64) - 1),), data=64), "string of", "tensor 0 name"),
    "array nested 100 deep": (
        gguf(keys=(text("k") + _ARRAY + struct.pack("<IQ", 9, 1) * 100,), data=64),
        "nested deeper",
        "k",
    ),
    "array of 2^60 numbers": (gguf(keys=(text("k") + _array(4, 1 << 60),), data=64), "count of", "k"),
    "array of 2^60 strings": (gguf(keys=(text("k") + _array(8, 1 << 60),), data=64), "count of", "k"),
    "more strings than bytes": (gguf(keys=(text("k") + _array(8, 1 << 26),), data=64), "count of", "k"),
    "more numbers than bytes": (gguf(keys=(text("k") + _array(0, 1 << 26),), data=64), "count of", "k"),
    "more tensors than bytes": (preamble(1 << 18, 0) + bytes(64), "count of", "tensor_count"),
    "more keys than bytes": (preamble(0, 1 << 16) + bytes(64), "count of", "metadata_kv_count"),
    "array of long string": (
        gguf(keys=(text("k") + _array(8, 2, text("a") + struct.pack("<Q", 1 << 63)),), data=64),
        "string of 9223372036854775808",
        "k",
    ),
    "array type 13": (gguf(keys=(text("k") + _array(13, 1),), data=64), "array type 13", "k"),
    "value type 77": (gguf(keys=(text("k") + struct.pack("<I", 77),), data=64), "value type 77", "k"),
    "bool of 2": (gguf(keys=(text("k") + struct.pack("<IB", 7, 2),), data=64), "bool holds 2", "k"),
    "bool array of 2": (gguf(keys=(text("k") + _array(7, 3, b"\1\0\2"),), data=64), "bool array", "k"),
    "offset past the end": (gguf(tensors=(tensor("w", [4], offset=1 << 40),), data=64), "past the end", "w"),
    "offset wraps": (gguf(tensors=(tensor("w", [8], offset=(1 << 64) - 32),), data=64), "past the end", "w"),
    "data past the end": (gguf(tensors=(tensor("w", [64]),), data=64), "past the end", "w"),
    "offset not aligned": (gguf(tensors=(tensor("w", [4], offset=8),), data=64), "multiple of 32", "w"),
    "two tensors, one name": (
        gguf(tensors=(tensor("w", [4]), tensor("w", [4], offset=32)), data=64),
        "same name",
        "w",
    ),
    "overlapping tensors": (gguf(tensors=(tensor("a", [16]), tensor("b", [4], offset=32)), data=64), "overlap", "b"),
    "same place": (gguf(tensors=(tensor("a", [4]), tensor("b", [4])), data=64), "overlap", "b"),
    "two keys, one name": (gguf(keys=(key_u32("k", 1), key_u32("k", 2))), "twice", "k"),
    "empty key": (gguf(keys=(key_u32("", 1),), data=8), "key is empty", "key 0"),
    "empty tensor name": (gguf(tensors=(tensor("", [4]),), data=64), "name is empty", "tensor 0 name"),
    "key not UTF-8": (gguf(keys=(text(b"\xff\xfe") + struct.pack("<II", 4, 1),)), "UTF-8", "key 0"),
    "tensor type 999": (gguf(tensors=(tensor("w", [4], kind=999),), data=64), "type 999", "w"),
    "removed type 4": (gguf(tensors=(tensor("w", [32], kind=4),), data=64), "type 4", "w"),
    "row not whole blocks": (gguf(tensors=(tensor("w", [33], kind=2),), data=64), "33 elements", "w"),
    "version 99": (gguf(version=99), "version 99", "version"),
    "version 1": (gguf(version=1), "version 1 ", "version"),
    "version 0": (gguf(version=0), "version 0", "version"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian", "version"),
    "2^60 tensors": (preamble(1 << 60, 0) + bytes(64), "count of", "tensor_count"),
    "2^60 keys": (preamble(0, 1 << 60) + bytes(64), "count of", "metadata_kv_count"),
    "wrong magic": (b"GGML" + bytes(60), "not a GGUF", "magic"),
    "empty file": (b"", "not a GGUF", "magic"),
    "magic only": (b"GGUF", "ends early", "version"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_one_typed_error_with_field_and_offset(case: str, tmp_path: Path) -> None:
    content, words, field = HOSTILE[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    times = []
    for _ in range(3):
        begin = time.process_time()
        with pytest.raises(FormatError):
            GGUFFile.open(path)
        times.append(time.process_time() - begin)
    assert words in str(caught.value)
    assert caught.value.field == field
    assert caught.value.offset is not None and 0 <= caught.value.offset <= len(content)
    assert "\n" not in str(caught.value)
    assert min(times) < 0.05
    assert peak < 10_000_000


def test_a_file_that_was_cut_short_is_named_and_suspected(tmp_path: Path) -> None:
    """What an interrupted download or copy leaves, wherever it stopped."""
    whole = gguf(keys=(key_u32("k", 1),), tensors=(tensor("w", [4]), tensor("v", [4], offset=32)), data=48)
    path = tmp_path / "x.gguf"
    for size in (0, 4, 20, 30, len(whole) - 60, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError) as caught:
            GGUFFile.open(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "complete?" in str(caught.value) or "it is empty" in str(caught.value)


def test_the_offset_named_is_where_the_bad_number_lies(tmp_path: Path) -> None:
    content = gguf(tensors=(tensor("w", [1] * 9),), data=64)
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(path)
    assert struct.unpack_from("<I", content, caught.value.offset)[0] == 9


def _rich_file(path: Path) -> None:
    writer = GGUFWriter()
    writer.add("general.architecture", "llama")
    writer.add("a.bool", True)
    writer.add("a.neg", -7)
    writer.add("a.big", 1 << 40)
    writer.add("a.float", 0.5)
    writer.add("a.double", 0.1, "f64")
    writer.add("a.strings", ["", "x", "ünï", "a\0b", "y" * 300, "z"])
    writer.add("a.many", [f"token {i}" for i in range(3000)])
    writer.add("a.numbers", np.arange(5, dtype=np.float32))
    writer.add("a.bools", [True, False])
    writer.add_tensor("w", "f32", (2, 3), np.arange(6, dtype=np.float32).view(np.uint8))
    writer.add_tensor("q", "q4_0", (3, 64), np.arange(3 * 36, dtype=np.uint8))
    writer.write(path)


def test_every_prefix_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    writer = GGUFWriter()
    writer.add("general.architecture", "llama")
    writer.add("names", ["a", "bb"])
    writer.add_tensor("w", "f32", (64,), np.zeros(256, np.uint8))
    writer.write(whole)
    content = whole.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError):
            GGUFFile.open(path)


def test_values_of_every_type_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rich.gguf"
    _rich_file(path)
    file = GGUFFile.open(path)
    keys = file.metadata
    assert keys["general.architecture"] == "llama"
    assert keys["a.bool"] is True
    assert (keys["a.neg"], keys["a.big"], keys["a.float"], keys["a.double"]) == (-7, 1 << 40, 0.5, 0.1)
    assert keys["a.strings"].tolist() == ["", "x", "ünï", "a\0b", "y" * 300, "z"]
    assert list(keys["a.many"]) == [f"token {i}" for i in range(3000)]
    assert keys["a.numbers"].tolist() == [0, 1, 2, 3, 4]
    assert keys["a.bools"].dtype == np.bool_ and keys["a.bools"].tolist() == [True, False]


def test_shapes_are_in_numpy_order_and_data_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "rich.gguf"
    _rich_file(path)
    file = GGUFFile.open(path)
    assert file.tensors["w"].shape == (2, 3)
    assert file.data("w").view("<f4").reshape(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    info = file.tensors["q"]
    assert (info.format, info.shape, info.num_bytes, info.offset % 32) == ("q4_0", (3, 64), 108, 0)
    with pytest.raises(ValueError, match="read-only"):
        file.data("q")[0] = 1


def test_the_gguf_package_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rich.gguf"
    _rich_file(path)
    file, other = GGUFFile.open(path), gguf_package.GGUFReader(path)
    for tensor_info in other.tensors:
        assert np.array_equal(file.data(tensor_info.name), tensor_info.data.reshape(-1).view(np.uint8))
    for key, value in file.metadata.items():
        expected = other.fields[key].contents()
        assert (value.tolist() if hasattr(value, "tolist") else value) == expected


def test_files_of_the_gguf_package_are_read(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_token_list(["a", "b", "ć"])
    writer.add_uint64("u64", 1 << 50)
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    writer.add_tensor("w", values)
    packed = gguf_package.quants.quantize(values, gguf_package.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", packed, raw_dtype=gguf_package.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(path)
    assert file.alignment == 64
    assert file.metadata["tokenizer.ggml.tokens"].tolist() == ["a", "b", "ć"]
    assert file.metadata["u64"] == 1 << 50
    assert np.array_equal(file.data("w").view("<f4").reshape(4, 64), values)
    assert (file.tensors["q"].format, file.tensors["q"].shape) == ("q8_0", (4, 64))


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "v2.gguf"
    path.write_bytes(gguf(version=2, keys=(key_u32("k", 5),), tensors=(tensor("w", [8]),), data=32))
    file = GGUFFile.open(path)
    assert (file.version, file.metadata, file.tensors["w"].shape) == (2, {"k": 5}, (8,))


def test_shallow_nested_arrays_are_read(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 1, 2)
    path = tmp_path / "nested.gguf"
    path.write_bytes(gguf(keys=(text("k") + _array(9, 2, inner * 2),)))
    assert [item.tolist() for item in GGUFFile.open(path).metadata["k"]] == [[1, 2], [1, 2]]


def test_a_broken_byte_in_a_text_value_does_not_refuse_the_file(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_bytes(gguf(keys=(key_str("general.name", b"a\xffb"),)))
    assert GGUFFile.open(path).metadata["general.name"] == "a\ufffdb"


def test_a_missing_file_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot open"):
        GGUFFile.open(tmp_path / "none.gguf")


def test_views_outlive_close(tmp_path: Path) -> None:
    path = tmp_path / "rich.gguf"
    _rich_file(path)
    file = GGUFFile.open(path)
    view, tokens = file.data("w"), file.metadata["a.many"]
    file.close()
    assert view.view("<f4")[5] == 5 and tokens[2] == "token 2"
    with pytest.raises(ModelError, match="closed"):
        file.data("w")


def test_a_vocabulary_of_250000_strings_parses_within_60_ms(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    writer = GGUFWriter()
    words = [f"tök{i}" for i in range(250_000)]
    writer.add("tokenizer.ggml.tokens", words)
    writer.add("tokenizer.ggml.scores", np.zeros(250_000, np.float32))
    writer.write(path)
    times = []
    for _ in range(5):
        begin = time.process_time()
        file = GGUFFile.open(path)
        times.append(time.process_time() - begin)
    assert min(times) < 0.06
    assert file.metadata["tokenizer.ggml.tokens"] == words
