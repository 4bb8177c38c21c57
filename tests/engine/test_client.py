"""`AsyncEngine` over a real engine process: answers, aborts, rejections, and every way an engine can end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.golden import tiny

from octavo.engine.client import AsyncEngine
from octavo.engine.config import EngineConfig
from octavo.engine.errors import EngineDeadError, RequestError, ShuttingDownError, TooLargeError
from octavo.engine.messages import AddRequest, RequestOutput
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.spawn import spawn


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    return tiny.write_safetensors("llama", tmp_path_factory.mktemp("client"))


def config(model: Path) -> EngineConfig:
    return EngineConfig(str(model), kv_bytes=4 << 20, max_batch_tokens=64, max_num_seqs=4, num_threads=1)


def with_engine(model: Path, body: Callable[[AsyncEngine], Awaitable[None]]) -> None:
    """Runs `body` with a started engine, which is closed afterwards."""

    async def main() -> None:
        engine = await AsyncEngine.start(config(model), deadline_s=60)
        try:
            await body(engine)
        finally:
            await engine.close()

    asyncio.run(asyncio.wait_for(main(), 90))


def request(name: str, num_prompt: int = 5, **params: object) -> AddRequest:
    sampling = SamplingParams(**{"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **params})  # type: ignore[arg-type]
    return AddRequest(name, [1 + i % 200 for i in range(num_prompt)], sampling)


async def collect(outputs: AsyncIterator[RequestOutput]) -> tuple[list[int], str]:
    tokens: list[int] = []
    reason = ""
    async for output in outputs:
        tokens += output.tokens
        reason = output.finish_reason
    return tokens, reason


async def idle(engine: AsyncEngine, deadline_s: float = 2.0) -> dict[str, float]:
    """Stats once nothing runs any more."""
    end = time.monotonic() + deadline_s
    while True:
        stats = await engine.stats()
        if stats["num_requests_running"] + stats["num_requests_waiting"] == 0 or time.monotonic() > end:
            return stats
        await asyncio.sleep(0.005)


def test_requests_at_once_get_the_answers_they_get_alone(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        alone = [await collect(engine.submit(request(f"a{n}", n))) for n in range(1, 7)]
        together = await asyncio.gather(*(collect(engine.submit(request(f"b{n}", n))) for n in range(1, 7)))
        assert alone == list(together)
        assert all(len(tokens) == 8 and reason == "length" for tokens, reason in alone)

    with_engine(model, body)


def test_closing_an_answer_early_frees_its_blocks(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        async for _ in engine.submit(request("long", max_tokens=200)):
            break
        stats = await idle(engine)
        assert stats["num_requests_running"] == stats["kv_blocks_used"] == 0
        assert stats["num_aborts"] == 1

    with_engine(model, body)


def test_a_bad_request_is_rejected_and_costs_nobody_else(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        neighbour = asyncio.create_task(collect(engine.submit(request("good", max_tokens=100))))
        with pytest.raises(RequestError, match="token id 999999") as caught:
            await collect(engine.submit(AddRequest("bad", [999999], SamplingParams())))
        assert caught.value.param == "prompt"
        with pytest.raises(TooLargeError):
            await collect(engine.submit(request("large", 256, max_tokens=300)))
        for wrong in ([1.5], [np.int64(5)], [1 << 70], "text"):
            with pytest.raises(RequestError, match=r"wrong type|cannot be sent"):
                await collect(engine.submit(AddRequest("wrong", wrong, SamplingParams())))  # type: ignore[arg-type]
        assert len((await neighbour)[0]) == 100

    with_engine(model, body)


def test_a_killed_engine_is_an_error_within_two_seconds_and_the_log_says_so(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("octavo.engine"), "propagate", True)

    async def body(engine: AsyncEngine) -> None:
        streams = [asyncio.create_task(collect(engine.submit(request(f"s{i}", max_tokens=240)))) for i in range(3)]
        await asyncio.sleep(0.05)
        os.kill(engine.pid, signal.SIGKILL)
        killed = time.monotonic()
        for result in await asyncio.gather(*streams, return_exceptions=True):
            assert isinstance(result, EngineDeadError) or (isinstance(result, tuple) and len(result[0]) == 240)
        while engine.is_alive and time.monotonic() - killed < 2:  # all answers may have been whole before
            await asyncio.sleep(0.01)
        assert not engine.is_alive and time.monotonic() - killed < 2
        with pytest.raises(EngineDeadError):
            await collect(engine.submit(request("late")))
        with pytest.raises(EngineDeadError):
            await engine.stats()

    with_engine(model, body)
    assert "the engine is gone (" in caplog.text


def test_an_engine_that_is_told_to_end_is_no_error_in_the_log(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("octavo.engine"), "propagate", True)

    async def body(engine: AsyncEngine) -> None:
        await engine.drain(1.0)

    with_engine(model, body)
    assert "the engine is gone" not in caplog.text


def test_a_ctrl_c_before_the_engine_has_begun_is_its_parents_to_answer(model: Path) -> None:
    """A terminal sends it to both; while the engine still imported it died of it, with a traceback."""
    process, sock = spawn(config(model))

    async def main() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        engine = await AsyncEngine.attach(process, sock, deadline_s=60)
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 90))
    assert process.wait() == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(EngineDeadError, match=r"config\.json"):
            await AsyncEngine.start(EngineConfig(str(tmp_path)), deadline_s=60)

    asyncio.run(main())


def test_draining_finishes_what_runs_and_takes_nothing_new(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        running = asyncio.create_task(collect(engine.submit(request("last", max_tokens=60))))
        await asyncio.sleep(0.02)
        draining = asyncio.create_task(engine.drain(20))
        await asyncio.sleep(0)
        with pytest.raises((ShuttingDownError, EngineDeadError)):
            await collect(engine.submit(request("new")))
        assert len((await running)[0]) == 60
        await draining
        assert not engine.is_alive

    with_engine(model, body)


def test_draining_ends_what_takes_longer_as_aborted(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        running = [asyncio.create_task(collect(engine.submit(request(f"r{i}", max_tokens=245)))) for i in range(40)]
        await asyncio.sleep(0.02)
        await engine.drain(0.01)
        ended = [await one for one in running]
        assert {reason for _, reason in ended} <= {"length", "abort"} and ended[-1] == ([], "abort")

    with_engine(model, body)


PARENT = """
import asyncio, os, sys, time
from octavo.engine.client import AsyncEngine
from octavo.engine.config import EngineConfig
async def main():
    engine = await AsyncEngine.start(EngineConfig(sys.argv[1], kv_bytes=4 << 20, num_threads=1))
    sibling = os.fork() if sys.argv[2] == "forks" else 0
    if sys.argv[2] == "forks" and not sibling:
        time.sleep(60)  # holds a copy of the socket to the engine
    print(engine.pid, sibling, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["alone", "forks"])
def test_the_engine_dies_with_its_parent(model: Path, how: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), how], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert parent.stdout is not None
    pid, sibling = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end and _is_running(pid):
            time.sleep(0.02)
        assert not _is_running(pid)
    finally:
        if sibling:
            os.kill(sibling, signal.SIGKILL)


@pytest.mark.parametrize(("level", "is_told"), [(None, True), ("info", True), ("warning", False)])
def test_the_engine_logs_at_the_level_it_is_given(
    model: Path, level: str | None, is_told: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_LOG", raising=False)

    async def main() -> None:
        await (await AsyncEngine.attach(*spawn(config(model), level), deadline_s=60)).close()

    asyncio.run(asyncio.wait_for(main(), 90))
    told = capfd.readouterr().err
    assert ("INFO engine: LlamaForCausalLM in f32, context 256 tokens; platform" in told) == is_told
    assert ("INFO engine: memory: usable" in told) == is_told


def test_an_engine_outlives_the_thread_that_started_it(model: Path) -> None:
    started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

    def start() -> None:
        started.append(spawn(config(model)))
        started[0][1].recv(1, socket.MSG_PEEK)  # the engine has said that it is ready

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(60)
    time.sleep(0.1)

    async def main() -> None:
        engine = await AsyncEngine.attach(*started[0], deadline_s=60)
        try:
            assert len((await collect(engine.submit(request("a"))))[0]) == 8
        finally:
            await engine.close()

    asyncio.run(asyncio.wait_for(main(), 90))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_choices_sent_one_by_one_compute_their_prompt_once(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        first = request("c0", 50, temperature=1.0, seed=3)
        rest = [msgspec.structs.replace(first, request_id=f"c{i}", choice=i, leader="c0") for i in (1, 2, 3)]
        answers = await asyncio.gather(*(collect(engine.submit(r)) for r in (first, *rest)))
        assert len({tuple(tokens) for tokens, _ in answers}) == 4, "choices draw their own noise"
        stats = await idle(engine)
        assert stats["prefix_cache_hits"] == 3 * 49

    with_engine(model, body)


def test_an_id_in_use_is_refused_and_its_owner_still_gets_everything(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        owner = asyncio.create_task(collect(engine.submit(request("same", max_tokens=60))))
        await asyncio.sleep(0)  # the owner's request is sent, and sixty tokens take longer than the refusal
        with pytest.raises(RequestError, match="in use"):
            await collect(engine.submit(request("same")))
        assert len((await owner)[0]) == 60

    with_engine(model, body)


def test_a_request_of_several_choices_gets_all_of_them(model: Path) -> None:
    async def body(engine: AsyncEngine) -> None:
        ended = {o.choice async for o in engine.submit(request("n", n=3, temperature=1.0)) if o.finish_reason}
        assert ended == {0, 1, 2}
        assert (await idle(engine))["num_aborts"] == 0

    with_engine(model, body)
