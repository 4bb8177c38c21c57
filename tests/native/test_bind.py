"""What Python may hand to the native side wrongly is an error there, never a wrong read or an abort."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load


@pytest.fixture(scope="module")
def native() -> Any:
    """The module."""
    try:
        return load()
    except PlatformError as error:
        pytest.skip(str(error))


def step(native: Any, **changes: Any) -> Any:
    ids = np.zeros(4, np.int32)
    fields = {
        "num_tokens": 4, "num_seqs": 1, "num_logits": 0, "token_ids": ids, "positions": ids.reshape(1, -1),
        "query_start": np.array([0, 4], np.int32), "kv_len": ids[:1], "token_seq": ids, "token_types": None,
        "logits_rows": ids[:0], "pool": 0, "tables": [np.zeros((1, 3), np.int32)],
    }  # fmt: skip
    return native.Step(*{**fields, **changes}.values())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"token_ids": np.zeros(8, np.int32)[::2]}, "token_ids: needs a contiguous array"),
        ({"positions": np.zeros((4, 2), np.int32).T}, "positions: needs a contiguous array"),
        ({"tables": [np.zeros((1, 6), np.int32)[:, ::2]]}, "block_table: needs a contiguous array"),
        ({"token_ids": np.zeros(4, np.int64)}, "token_ids: needs int32"),
        ({"token_ids": np.zeros(4, np.float32)}, "token_ids: needs int32"),
        ({"token_seq": np.zeros(3, np.int32)}, "token_seq: needs 4 values, found 3"),
        ({"tables": [np.zeros(3, np.int32)]}, "block table: needs"),
        ({"tables": [np.zeros((1, 3), np.int32)] * 9}, "more than 8 KV groups"),
    ],
)
def test_arrays_of_another_shape_are_refused(native: Any, changes: dict[str, Any], text: str) -> None:
    step(native)
    step(native, tables=[np.zeros((1, 6), np.int32)[:, :3]])  # rows may be apart
    with pytest.raises(ValueError, match=text):
        step(native, **changes)


@pytest.mark.parametrize("size", [0, -1, 2**47 + 1, 2**63 - 1])
def test_an_arena_of_no_possible_size_is_refused(native: Any, size: int) -> None:
    with pytest.raises(ValueError, match="arena: asked for"):
        native.Arena(size)


@pytest.mark.parametrize("threads", [0, -3])
def test_a_team_of_nobody_is_refused(native: Any, threads: int) -> None:
    with pytest.raises(ValueError, match="1 is the least"):
        native.Team(threads, 10)


def test_a_system_that_gives_no_more_threads_is_an_error_not_an_abort(native: Any) -> None:
    script = (
        "import resource\n"
        "from octavo import _avx\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (160 << 20),) * 2)\n"
        "try:\n"
        "    _avx.Team(64, 10)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "_avx.Team(2, 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "of 64 threads could be started" in done.stdout
