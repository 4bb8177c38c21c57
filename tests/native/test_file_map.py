"""A mapped file shows its bytes, also while they move to huge pages under readers' hands."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load

HUGE = 2 << 20


@pytest.fixture(scope="module")
def native() -> Any:
    """The module."""
    try:
        return load()
    except PlatformError as error:
        pytest.skip(str(error))


def mapped(native: Any, path: Path, size: int) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    path.write_bytes(content.tobytes())
    with open(path, "rb") as file:
        whole = native.FileMap(file.fileno(), size)
    return whole, np.frombuffer(whole, np.uint8), content


def mapping_of(path: Path) -> int:
    """Bytes of this process's memory that are still the file's."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            first, _, last = line.split()[0].partition("-")
            total += int(last, 16) - int(first, 16)
    return total


@pytest.mark.parametrize("size", [1, 4096, HUGE - 1, HUGE, 3 * HUGE + 5000])
def test_whole_huge_pages_move_and_every_byte_stays(native: Any, size: int, tmp_path: Path) -> None:
    whole, seen, content = mapped(native, tmp_path / "w", size)
    assert seen.ctypes.data % HUGE == 0 and not seen.flags.writeable and np.array_equal(seen, content)
    moved, at = [], 0
    while step := whole.settle(at, HUGE):
        moved.append(step)
        at += step
    assert moved == [HUGE] * (size // HUGE)
    assert np.array_equal(seen, content)
    rest = size - sum(moved)
    assert mapping_of(tmp_path / "w") == -(-rest // 4096) * 4096
    assert whole.settle(0, HUGE) == (HUGE if size >= HUGE else 0) and np.array_equal(seen, content)  # again, harmlessly


def test_readers_never_see_anything_else_while_parts_move(native: Any, tmp_path: Path) -> None:
    whole, seen, content = mapped(native, tmp_path / "w", 8 * HUGE)
    has_ended, wrong = threading.Event(), []

    def read() -> None:
        while not has_ended.is_set():
            if not np.array_equal(seen, content):
                wrong.append(1)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        for at in range(0, 8 * HUGE, 2 * HUGE):
            assert whole.settle(at, 2 * HUGE) == 2 * HUGE
    has_ended.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_the_map_lives_as_long_as_its_views_and_goes_with_them(native: Any, tmp_path: Path) -> None:
    whole, seen, content = mapped(native, tmp_path / "w", 2 * HUGE)
    part = seen[HUGE - 5 :]
    whole.settle(0, HUGE)
    del whole, seen
    assert np.array_equal(part, content[HUGE - 5 :]) and mapping_of(tmp_path / "w") == HUGE
    del part
    assert mapping_of(tmp_path / "w") == 0


def test_what_cannot_be_mapped_is_an_error(native: Any, tmp_path: Path) -> None:
    for size in (0, -1):
        with pytest.raises(ValueError, match="1 is the least"):
            native.FileMap(0, size)
    read, write = os.pipe()
    with pytest.raises(RuntimeError, match="does not map"):
        native.FileMap(read, 4096)
    os.close(read)
    os.close(write)
    whole, _, _ = mapped(native, tmp_path / "w", HUGE)
    for at in (-HUGE, 4096):
        with pytest.raises(ValueError, match="multiples of 2 MiB"):
            whole.settle(at, HUGE)
    assert whole.settle(4 * HUGE, HUGE) == 0 and whole.settle(0, -1) == 0
