"""Mutated headers are read or refused with a typed error: never another exception, a hang, or a wild read."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.engine.loading.safetensors import SafetensorsFile, open_shards
from octavo.engine.loading.string_array import StringArray

_NUMBERS = [0, 1, 2, 3, 7, 8, 9, 31, 32, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 60]
_NUMBERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]


def _gguf_seed(path: Path) -> bytes:
    writer = GGUFWriter()
    writer.add("general.architecture", "llama")
    writer.add("general.alignment", 32)
    writer.add("a.bool", True)
    writer.add("a.floats", [0.5, 1.5])
    writer.add("a.bools", [True, False, True])
    writer.add("tokenizer.ggml.tokens", [f"t{i}" for i in range(90)] + ["x" * 300, ""])
    writer.add_tensor("a.weight", "f32", (3, 4), np.zeros(48, np.uint8))
    writer.add_tensor("b.weight", "q4_k", (2, 256), np.zeros(288, np.uint8))
    writer.add_tensor("c.weight", "q8_0", (1, 32), np.zeros(34, np.uint8))
    writer.write(path)
    return path.read_bytes()


def mutate(content: bytes, rng: random.Random, header_bytes: int) -> bytes:
    """One to four random edits of the header: bytes, whole integers, cuts, copies, insertions."""
    out = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(header_bytes, len(out) or 1)) if out else 0
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[at] = rng.randrange(256)
        elif kind == 1 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at : at + 8] = struct.pack("<Q", rng.choice(_NUMBERS))
        elif kind == 3:
            out[at : at + 4] = struct.pack("<I", rng.choice(_NUMBERS) & 0xFFFFFFFF)
        elif kind == 4:
            del out[at : at + rng.randrange(1, 40)]
        elif kind == 5:
            other = rng.randrange(min(header_bytes, len(out) or 1))
            out[at:at] = out[other : other + rng.randrange(1, 40)]
        else:
            del out[rng.randrange(len(out) + 1) :]
    return bytes(out)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_gguf_headers_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    content = _gguf_seed(tmp_path / "seed.gguf")
    header_bytes = GGUFFile.open(tmp_path / "seed.gguf").data_offset
    path = tmp_path / "mutated.gguf"
    counts = {True: 0, False: 0}
    for _ in range(1500):
        path.write_bytes(mutate(content, rng, header_bytes))
        try:
            file = GGUFFile.open(path)
            for name, info in file.tensors.items():
                assert len(file.data(name)) == info.num_bytes
            for value in file.metadata.values():
                if isinstance(value, StringArray):
                    value.tolist()
            counts[True] += 1
        except ModelError as error:
            assert "\n" not in str(error).replace("\\n", "")
            counts[False] += 1
    assert counts[True] > 20 and counts[False] > 500  # both ends are exercised


@pytest.mark.parametrize("seed", range(2))
def test_mutated_safetensors_headers_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    tensors = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.int64), "c": np.zeros((0, 2), np.float16)}
    safetensors.numpy.save_file(tensors, tmp_path / "seed.safetensors", metadata={"k": "v"})
    content = (tmp_path / "seed.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    path = tmp_path / "mutated.safetensors"
    num_refused = 0
    for _ in range(1500):
        path.write_bytes(mutate(content, rng, 8 + length))
        try:
            file = SafetensorsFile.open(path)
            for name, info in file.tensors.items():
                assert len(file.data(name)) == info.num_bytes
        except ModelError:
            num_refused += 1
    assert num_refused > 500


def test_mutated_indexes_and_configurations_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(9)
    safetensors.numpy.save_file({"a": np.zeros(2, np.float32)}, tmp_path / "m1.safetensors")
    index = json.dumps({"metadata": {"x": 1}, "weight_map": {"a": "m1.safetensors"}}).encode()
    config = json.dumps({"architectures": ["X"], "eos_token_id": [1, 2], "text_config": {"a": 1}}).encode()
    index_path, config_path = tmp_path / "model.safetensors.index.json", tmp_path / "config.json"
    for _ in range(600):
        index_path.write_bytes(mutate(index, rng, len(index)))
        config_path.write_bytes(mutate(config, rng, len(config)))
        try:
            for file in open_shards(index_path):
                file.close()
        except ModelError:
            pass
        try:
            files = open_model(tmp_path, needs_tokenizer=False)
            assert all(isinstance(i, int) for i in files.eos_token_ids)
            assert files.architecture
        except ModelError:
            pass
