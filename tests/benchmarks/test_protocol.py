"""Peers' answers: windows hold only steps in which all requests decode, failures are answers, prefixes are found."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from benchmarks.peers import protocol
from benchmarks.peers.protocol import Steps, answer, shared_prefix
from benchmarks.processes import PEERS


def clock(*times: float) -> Any:
    left = iter(times)
    return lambda: next(left)


def test_window_is_from_all_have_a_token_to_the_first_that_ends() -> None:
    steps = Steps(3, clock(10.0, 11.0, 12.0, 13.5, 14.0, 15.0))
    for counts in ([1, 0], [2, 1], [3, 2], [3, 3]):
        steps.mark(counts)
    found = steps.answer([3, 3])
    assert found == {"seconds": 5.0, "first_seconds": 2.0, "window_seconds": 1.5, "window_tokens": 2}


def test_one_token_has_no_window() -> None:
    steps = Steps(1, clock(0.0, 2.0, 2.5))
    steps.mark([1])
    assert steps.answer([1]) == {"seconds": 2.5, "first_seconds": 2.0}


def test_answers_of_another_length_are_errors() -> None:
    with pytest.raises(RuntimeError, match=r"asked for 4 tokens each, got \[3, 4\]"):
        Steps(4).answer([4, 3])


class Toy:
    peer, version = "toy", "1"

    def first(self) -> str:
        return "hello"

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        if not prompts:
            raise ValueError("no prompts")
        return {"seconds": new}

    def reset(self) -> None: ...


def test_failures_and_unknown_commands_are_answers() -> None:
    assert answer(Toy(), {"do": "generate", "prompts": [[1]], "new": 2}) == {"seconds": 2}
    assert answer(Toy(), {"do": "generate", "prompts": [], "new": 2}) == {"error": "ValueError: no prompts"}
    assert "there are generate" in answer(Toy(), {"do": "decode"})["error"]
    assert answer(Toy(), {"do": "reset"}) == {}
    assert answer(Toy(), {"do": "memory"})["bytes"] > 1 << 20


@pytest.mark.parametrize(
    ("prompts", "length"),
    [
        ([[1, 2, 3], [1, 2, 4]], 2),
        ([[1, 2], [1, 2]], 1),
        ([[5, 2], [1, 2]], 0),
        ([[1, 2, 3, 4], [1, 2]], 1),
    ],
)
def test_shared_prefix_leaves_a_token_to_each(prompts: list[list[int]], length: int) -> None:
    assert shared_prefix(prompts) == length


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from protocol import serve
class Engine:
    peer, version = "toy", "2"
    def __init__(self, path, threads):
        print("a library's chatter")
        if path == "bad": raise ValueError("no such model")
    def first(self): return "word"
    def generate(self, prompts, new): print("more"); return {{"seconds": len(prompts)}}
    def reset(self): pass
serve(Engine)
"""


def run(*words: str, stdin: str = "", model: str = "model", status: int = 0) -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(folder=str(PEERS)), model, "2", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines()


def test_only_answers_reach_the_output() -> None:
    lines = run(stdin='{"do": "generate", "prompts": [[1], [2]], "new": 1}\n{"do": "reset"}\n')
    assert [json.loads(line) for line in lines] == [{"peer": "toy", "version": "2"}, {"seconds": 2}, {}]
    assert run("--first") == ["word"]


def test_engine_that_cannot_start_says_why() -> None:
    assert [json.loads(line) for line in run(model="bad", status=1)] == [{"error": "ValueError: no such model"}]


def test_thread_variables_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "77")
    for name in ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "kept")
    protocol.limit_threads("3")
    assert protocol.os.environ["OMP_NUM_THREADS"] == "3" and protocol.os.environ["HF_HUB_OFFLINE"] == "kept"
