"""The `octavo` command: exit codes, one-line errors, what is imported when, and each command over a scripted model."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import httpx
import pytest
from tests.engine.server.conftest import is_listening, wait_until
from tests.engine.server.fakes import FakeEngine, make_text

from octavo.engine.errors import ModelError, RequestError, TooLargeError
from octavo.engine.llm import AnswerError, Completion, Piece
from octavo.engine.loading.source import Source
from octavo.engine.server.cli import COMMANDS, main
from octavo.engine.server.commands import doctor
from octavo.engine.server.commands.chat import Conversation
from octavo.engine.server.commands.options import sampling_params
from octavo.engine.server.logs import LOG

ROOT = Path(__file__).resolve().parents[3]


class ScriptedLLM:
    """Says the last user message backwards, in two pieces."""

    made: ClassVar[list[tuple[str, dict[str, Any]]]] = []
    asked: ClassVar[list[Any]] = []
    kept: ClassVar[list[str]] = []
    text = SimpleNamespace(template="{{ messages }}")
    room = 1 << 30  # tokens behind a prompt

    def __init__(self, model: str, **options: Any) -> None:
        progress = options.pop("progress")
        if model == "missing":
            raise ModelError("missing does not exist\nsecond line")
        if model == "far":
            progress("downloading far", 0, 0)
        self.made.append((model, options))

    def stream(self, prompt: str, params: Any) -> Iterator[Piece]:
        if params.max_tokens is not None and params.max_tokens > self.room:
            raise TooLargeError("more than the context holds")
        self.asked.append((prompt, params))
        text = prompt[::-1]
        for index in range(params.n):
            done = Completion(0, index, [1, 2], text=text, token_ids=[3, 4], finish_reason="stop")
            yield Piece(0, index, text[:1])
            yield Piece(0, index, text[1:], done)

    def stream_chat(self, messages: list[dict[str, str]], params: Any) -> Iterator[Piece]:
        if messages[-1]["content"] == "refuse":
            raise RequestError("too long")
        if messages[-1]["content"] == "fail":
            yield Piece(0, 0, "half an ans")
            raise AnswerError([Completion(0, 0, [1], error="the step failed")], 1, "engine_error")
        self.asked.append([dict(message) for message in messages])
        yield from self.stream(messages[-1]["content"], params)

    def keep_packed(self) -> None:
        self.kept.append("now")
        if self.made[-1][0] == "interrupted":
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.engine.llm.LLM", ScriptedLLM)
    ScriptedLLM.made, ScriptedLLM.asked, ScriptedLLM.kept = [], [], []
    for name in list(os.environ):
        if name.startswith("OCTAVO_"):
            monkeypatch.delenv(name)


@pytest.fixture
def restored_log() -> Iterator[None]:
    """The log's handlers and level as they were before a command set them."""
    logs = (LOG, logging.getLogger("octavo.engine"))
    before = [(log, log.handlers[:], log.level, log.propagate) for log in logs]
    yield
    for log, handlers, level, propagates in before:
        log.handlers[:], log.propagate = handlers, propagates
        log.setLevel(level)


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom octavo.engine.server.cli import main\nassert main(['--help']) == 0\n"
        "heavy = {'numpy', 'msgspec', 'asyncio', 'rich', 'granian', 'tokenizers', 'jinja2', 'torch', 'numba'}\n"
        "sys.exit(f'{heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"octavo {name}" in capsys.readouterr().out.partition("examples:")[2]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from octavo import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"octavo {__version__}\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, ""),
        (["srve"], 2, "did you mean serve"),
        (["xyz"], 2, "commands are serve"),
        (["--nonsense"], 2, "unrecognized"),
        (["generate"], 2, "MODEL"),
        (["generate", "m", "p", "--temperature", "9"], 2, "--temperature is 9"),
        (["generate", "m", "p", "--temperature", "hot"], 2, "'hot' is not a number"),
        (["generate", "m", "p", "-n", "0"], 2, "error: -n is 0"),
        (["generate", "m", "p", "--top-k", "1.5"], 2, "'1.5' is not a whole number"),
        (["generate", "m", "p", "--threads", "0"], 2, "whole number"),
        (["generate", "m", "p", "--kv-gib", "lots"], 2, "GiB"),
        (["generate", "m", "p", "--system", "s"], 2, "--chat"),
        (["generate", "m", ""], 2, "empty"),
        (["generate", "missing", "p"], 1, "missing does not exist second line"),
        (["serve", "m", "--port", "99999"], 2, "--port"),
        (["serve", "m", "--drain-s", "x"], 2, "'x' is not a number"),
        (["serve", "m", "--port", "abc"], 2, "'abc' is not a whole number"),
        (["serve", "/no/such/model.gguf", "--chat-template", "chatlm"], 2, "one of chatml, plain"),
        (["doctor", "--quantization", "q8_0"], 2, "name the model"),
        (["bench", "nothing"], 2, "no benchmark"),
        (["bench", "profile", "pypi:m"], 2, "pypi:m; what is meant for the benchmark goes after --"),
        (["pull", "/no/such/model.gguf"], 1, "does not exist"),
    ],
)
def test_errors_are_one_line_and_a_code(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") <= 1
    assert "Traceback" not in err
    assert not words or err.startswith("octavo: error: ")


def test_a_template_file_that_is_no_text_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.jinja").write_bytes(b"\xff\xfe\x00")
    assert main(["serve", "/no/such/model.gguf", "--chat-template", str(tmp_path / "t.jinja")]) == 2
    assert "it is not UTF-8 text" in capsys.readouterr().err


def test_bad_environment_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OCTAVO_THREADS", "many")
    assert main(["pull", "x"]) == 2
    assert "OCTAVO_THREADS" in capsys.readouterr().err


def test_traceback_only_with_debug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(self: Any, prompt: str, params: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ScriptedLLM, "stream", broken)
    assert main(["generate", "m", "p"]) == 1
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["generate", "m", "p", "--debug"])


def test_generate_prints_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "abc", "--max-tokens", "5", "--threads", "2", "--offline", "--isa", "avx2"]) == 0
    assert capsys.readouterr().out == "cba\n"
    assert ScriptedLLM.made == [("m", {"num_threads": 2, "is_offline": True, "isa": ("avx2",)})]
    params = ScriptedLLM.asked[0][1]
    assert (params.max_tokens, params.temperature, params.top_p) == (5, 0.7, 1.0)


@pytest.mark.parametrize("command", [["generate", "far", "abc"], ["chat", "far"]])
def test_fetching_a_model_is_shown_and_not_mixed_with_the_answer(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert main(command) == 0
    taken = capsys.readouterr()
    assert taken.out == "cba\n" and taken.err == "downloading far\n"


@pytest.mark.parametrize("command", [["generate", "m", "abc"], ["generate", "m", "abc", "--chat"], ["chat", "m"]])
def test_an_answer_ends_with_the_context_unless_its_length_was_asked_for(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short context (--max-model-len 100), or a long conversation, leaves less than the usual number of tokens."""
    monkeypatch.setattr(ScriptedLLM, "room", 100)
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert main(command) == 0
    assert capsys.readouterr().out == "cba\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert main([*command, "--max-tokens", "101"]) == 1
    assert "more than the context holds" in capsys.readouterr().err


def test_chat_with_a_model_without_template_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ScriptedLLM, "text", SimpleNamespace(template=None))
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert main(["chat", "m"]) == 1
    taken = capsys.readouterr()
    assert taken.out == "" and "octavo generate without --chat" in taken.err


def test_generate_keeps_packed_weights_before_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "abc"]) == 0 and ScriptedLLM.kept == ["now"]
    assert main(["generate", "interrupted", "abc"]) == 0  # the answer is there all the same
    assert capsys.readouterr().out == "cba\ncba\n" and len(ScriptedLLM.kept) == 2


def test_generate_json_has_choices_usage_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "abc", "-n", "2", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert [choice["text"] for choice in out["choices"]] == ["cba", "cba"]
    assert out["usage"] == {"prompt_tokens": 2, "completion_tokens": 4}
    assert set(out["seconds"]) == {"load", "first_token", "total"}


def test_generate_chat_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("ab"))
    assert main(["generate", "m", "-", "--chat", "--system", "s"]) == 0
    assert capsys.readouterr().out == "ba\n"
    assert ScriptedLLM.asked[0] == [{"role": "system", "content": "s"}, {"role": "user", "content": "ab"}]


def test_chat_keeps_the_conversation_and_obeys_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "ab\ncd\n/undo\nef\nrefuse\nfail\nkl\n/reset\ngh\n/system be kind\nij\n/exit\nnever\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["chat", "m", "--system", "s"]) == 1  # two answers failed
    taken = capsys.readouterr()
    assert taken.out == "ba\ndc\nfe\nhalf an anslk\nhg\nji\n"
    assert "too long" in taken.err and "the step failed" in taken.err
    turns = [[message["content"] for message in asked] for asked in ScriptedLLM.asked if isinstance(asked, list)]
    assert turns == [
        ["s", "ab"],
        ["s", "ab", "ba", "cd"],
        ["s", "ab", "ba", "ef"],
        ["s", "ab", "ba", "ef", "fe", "kl"],
        ["s", "gh"],
        ["be kind", "ij"],
    ]


def test_help_tells_the_defaults_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("computed per step (default 512)", "head (default bf16)", "may wait (default 4096)"):
        assert text in shown


def test_unknown_word_of_a_conversation_is_named() -> None:
    conversation = Conversation(lambda _: iter(()), None)
    assert str(conversation.command("/models")).startswith("there is no command /models; there are:\n/reset")
    assert str(conversation.command("/help")).startswith("/reset")


def test_pull_prints_where_the_model_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x" * 10)
    assert main(["pull", str(tmp_path / "m.gguf"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["path"], row["origin"], row["bytes"]) == (str(tmp_path / "m.gguf"), "local", 10)


def test_doctor_shows_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "chip": {"name": "x", "levels": ["avx2", "fma"], "amx": False, "gib": 23.54321},
        "kernels": [{"op": "linear", "chosen": "avx2"}, {"op": "rope", "chosen": "scalar", "why": "no avx512"}],
        "gpu": None,
    }
    fake = ModuleType("octavo.platforms.doctor")
    fake.report = lambda **_: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "octavo.platforms.doctor", fake)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "  levels  avx2, fma" in shown
    assert "  amx     no" in shown
    assert "  rope    scalar  no avx512" in shown
    assert list(doctor.lines([])) == ["-"]


def test_doctor_begins_with_one_line_and_says_sizes_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    first, empty, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Octavo ") and ": platform " in first and " threads" in first and empty == ""
    assert any(line.startswith("  usable_memory ") and line.endswith(" GiB") for line in rest)
    assert any(line.startswith("memory ") and "octavo doctor MODEL" in line for line in rest)
    refused = {"op": "linear", "refused": [{"kernel": "linear__amx", "reason": "the processor lacks it"}]}
    assert list(doctor.lines({"kernels": [refused], "l1d_bytes": 32768, "odd_bytes": 7, "none": {}})) == [
        "kernels:",
        "  op      refused",
        "  linear  amx",
        "l1d_bytes  32 KiB",
        "odd_bytes  7 bytes",
        "none       -",
    ]
    assert doctor.summary({"platform": {"problem": "no platform"}}) == "Octavo cannot run here: no platform"


@pytest.mark.parametrize(("name", "value"), [("OCTAVO_THREAD", "2"), ("OCTAVO_THREADS", "two"), ("OCTAVO_ISA", "avx9")])
def test_doctor_fails_where_a_start_would(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["doctor"]) == 1
    first = capsys.readouterr().out.partition("\n")[0]
    assert name in first and (" cannot run here: " in first or " does not start with this environment: " in first)


def test_sampling_defaults_stay_where_they_are_defined() -> None:
    params = sampling_params(argparse.Namespace(max_tokens=7, temperature=None))
    assert (params.max_tokens, params.temperature) == (7, 1.0)


def test_serve_says_when_it_is_ready_and_ends_at_a_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, restored_log: None
) -> None:
    engine = FakeEngine()
    child = SimpleNamespace(poll=lambda: 0)
    spawned: list[Any] = []

    async def attach(*given: Any) -> FakeEngine:
        return engine

    monkeypatch.setattr("octavo.engine.loading.source.resolve", lambda *_, **__: Source(tmp_path, "local", "toy"))
    monkeypatch.setattr("octavo.engine.spawn.spawn", lambda *given: spawned.append(given) or (child, None))
    monkeypatch.setattr("octavo.engine.client.AsyncEngine.attach", attach)
    monkeypatch.setattr("octavo.engine.model_text.load_text", lambda path, template=None: make_text())
    path = tmp_path / "s.sock"
    statuses: list[int] = []

    def ask_and_stop() -> None:
        try:
            wait_until(lambda: is_listening(path), 60)
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x") as client:
                wait_until(lambda: client.get("/ready").status_code == 200, 60)
                statuses.append(client.get("/v1/models").status_code)
                key = {"Authorization": "Bearer canary-key"}
                statuses.append(client.get("/v1/models", headers=key).status_code)
                body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
                statuses.append(client.post("/v1/chat/completions", headers=key, json=body).status_code)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    asker = threading.Thread(target=ask_and_stop)
    asker.start()
    words = ["serve", "m", "--uds", str(path), "--api-key", "canary-key", "--max-model-len", "99", "--json"]
    words += ["--log-level", "info"]
    try:
        assert main(words) == 0
    finally:
        asker.join()
    assert statuses == [401, 200, 200]
    taken = capsys.readouterr()
    row = json.loads(taken.out)
    assert row["model"] == "toy"
    assert row["url"] == f"unix:{path}"
    assert {"spawn", "http", "load", "first_token"} <= set(row["seconds"])
    config, log_level = spawned[0]
    assert (config.model, config.max_model_len, log_level) == (str(tmp_path), 99, "info")
    assert f"INFO loading {tmp_path}; requests to unix:{path} wait" in taken.err
    assert "canary" not in taken.out + taken.err
