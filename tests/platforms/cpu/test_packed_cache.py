"""Packed weights on disk: hit after save, miss after any damage, old copies replaced, same tokens."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from tests.engine import bits

from octavo.engine.build import packed_home
from octavo.engine.config import EngineConfig, WeightChange
from octavo.engine.loading.config import open_model
from octavo.platforms.cpu import packed_cache
from octavo.platforms.cpu.packed_cache import PackedCache

WEIGHTS = {"a": np.arange(5000, dtype=np.uint16).view(np.uint8), "b": np.ones(3, np.uint8)}


def saved(folder: Path, identity: bytes = b"one") -> Path:
    cache = PackedCache(folder, b"model", identity)
    for key, values in WEIGHTS.items():
        assert cache.get(key, values.nbytes) is None
        cache.put(key, values)
    path = cache.save()
    assert path is not None
    return path


def test_what_was_saved_is_found_and_verified(tmp_path: Path) -> None:
    saved(tmp_path)
    cache = PackedCache(tmp_path, b"model", b"one")
    for key, values in WEIGHTS.items():
        found = cache.get(key, values.nbytes)
        assert found is not None and np.array_equal(found, values)
    assert (cache.num_hits, cache.num_misses, cache.verify()) == (2, 0, [])
    assert cache.save() is None
    assert cache.get("a", 7) is None and cache.get("c", 3) is None


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_no_page_of_a_weight_is_touched_before_its_use(tmp_path: Path) -> None:
    cache = PackedCache(tmp_path, b"model", b"one")
    cache.put("a", np.zeros(8 << 20, np.uint8))
    path = cache.save()
    cache = PackedCache(tmp_path, b"model", b"one")
    found = cache.get("a", 8 << 20)
    assert found is not None

    def resident_kib() -> int:
        _, _, rest = Path("/proc/self/smaps").read_text().partition(str(path))
        return int(rest.partition("Rss:")[2].split()[0])

    assert resident_kib() <= 256  # head and table, with what the system maps around them
    assert not found.any() and resident_kib() >= 8 << 10


def test_settling_moves_small_pages_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PackedCache(tmp_path, b"model", b"one")
    weight = np.arange(3 << 20, dtype=np.uint16).view(np.uint8)
    cache.put("a", weight)
    cache.save()
    assert PackedCache(tmp_path, b"model", b"one").settle() == 0  # the system's own map cannot
    cache = PackedCache(tmp_path, b"model", b"one", open_map=pytest.importorskip("octavo._avx").FileMap)
    monkeypatch.setattr(packed_cache, "mapped_huge", lambda path: 5 << 20 if path == str(cache.path) else 0)
    assert cache.settle() == 0
    monkeypatch.setattr(packed_cache, "mapped_huge", lambda path: 1 << 20)
    assert cache.settle() == 6 << 20  # of 6 MiB and the table
    found = cache.get("a", weight.nbytes)
    assert found is not None and np.array_equal(found, weight) and cache.verify() == []


def test_huge_pages_are_counted_of_the_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    smaps = (
        "7f00-7f01 r--p 00000000 fe:00 1 /c/other.packed\nRss: 9 kB\nFilePmdMapped: 2048 kB\n"
        "7f02-7f03 r--p 00000000 fe:00 2 /c/a b.packed\nRss: 9 kB\nFilePmdMapped: 4096 kB\n"
        "7f04-7f05 r--p 00000000 fe:00 2 /c/a b.packed\nFilePmdMapped: 2048 kB\n7f06-7f07 rw-p 0 0 0 \nFilePmdMapped: 1 kB\n"
    )
    monkeypatch.setattr("builtins.open", lambda path: io.StringIO(smaps))
    assert packed_cache.mapped_huge("/c/a b.packed") == 6 << 20


def test_a_changed_checkpoint_misses_and_its_old_copy_is_removed(tmp_path: Path) -> None:
    old = saved(tmp_path)
    assert PackedCache(tmp_path, b"model", b"two").get("a", 10_000) is None
    new = saved(tmp_path, b"two")
    assert new.exists() and not old.exists()


@pytest.mark.parametrize("place", [0, 9, 20, 40, -1])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, place: int) -> None:
    path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    assert saved(tmp_path) == path
    assert PackedCache(tmp_path, b"model", b"one").get("a", 10_000) is not None


@pytest.mark.parametrize("size", [0, 10, 4095, 4096, 9000])
def test_a_cut_file_is_a_miss(tmp_path: Path, size: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    assert PackedCache(tmp_path, b"model", b"one").get("a", 10_000) is None


def test_a_damaged_copy_is_told_from_a_sound_one_and_from_a_cut_one(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert packed_cache.damaged(path) == ""
    data = bytearray(path.read_bytes())
    data[4096 + 9] ^= 1
    path.write_bytes(data)
    assert packed_cache.damaged(path) == "1 of 2 weights are not what was written, a the first; delete it"
    for size in (0, 4096, 9000):
        path.write_bytes(data[:size])
        assert packed_cache.damaged(path).startswith("no copy of this version, or cut")


def test_damaged_payload_is_named_by_verify(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[4096 + 17] ^= 1
    path.write_bytes(data)
    assert PackedCache(tmp_path, b"model", b"one").verify() == ["a"]


def test_a_weight_that_was_missing_joins_those_that_were_there(tmp_path: Path) -> None:
    saved(tmp_path)
    cache = PackedCache(tmp_path, b"model", b"one")
    assert cache.get("c", 5) is None
    cache.put("c", np.full(5, 7, np.uint8))
    assert cache.save() == cache.path
    again = PackedCache(tmp_path, b"model", b"one")
    assert again.get("a", 10_000) is not None and again.get("b", 3) is not None and again.get("c", 5) is not None
    assert again.verify() == []


def test_files_of_killed_writers_do_not_pile_up(tmp_path: Path) -> None:
    old, running = tmp_path / ".packing-old", tmp_path / ".packing-running"
    for path in (old, running):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    saved(tmp_path)
    assert running.exists() and not old.exists()


def test_a_folder_that_cannot_be_written_costs_only_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = PackedCache(blocked, b"model", b"one")
    cache.put("a", WEIGHTS["a"])
    assert cache.save() is None


def test_a_model_served_from_packed_weights_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bits.write_quantized("llama", "q4_1", tmp_path / "m.gguf")
    options = {"packed_cache": "on", "cache_dir": str(tmp_path / "cache")}
    prompts = bits.prompts([5, 40])
    plain = bits.run(bits.make_core(model, packed_cache="off"), prompts)
    files = open_model(model, needs_tokenizer=False)
    home = packed_home(EngineConfig(str(model), packed_cache="on"), files, tmp_path / "cache", WeightChange())
    assert home is not None
    core = bits.make_core(model, **options)
    first = bits.run(core, prompts)
    assert core.keeper is not None
    core.keeper.keep()
    path = PackedCache(home.folder, home.origin, home.identity).path
    assert path.exists()
    path.chmod(0o444)
    stamp = path.stat().st_mtime_ns
    monkeypatch.setattr("octavo.engine.models.raw._rows", None)  # no row of the checkpoint is put in order again
    second = bits.run(bits.make_core(model, **options), prompts)
    assert path.stat().st_mtime_ns == stamp, "the copy was written again: it was not used"
    assert plain.of(list(prompts)) == first.of(list(prompts)) == second.of(list(prompts))


def test_machines_of_another_kind_keep_their_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        paths.append(saved(tmp_path))
    assert len(set(paths)) == 2 and all(path.exists() for path in paths)
    changed = saved(tmp_path, b"two")
    assert changed.exists() and [path.exists() for path in paths] == [True, False]
