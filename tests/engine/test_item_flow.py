"""Items between the processes: results in any order, ends that are told, a drain that takes the rest of what is open."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import numpy as np
import pytest
from tests.engine.pooling.test_core import items, make_core
from tests.golden import tiny_sentences

from octavo.engine.client import AsyncEngine, ItemFlow
from octavo.engine.config import EngineConfig
from octavo.engine.errors import EngineDeadError, RequestError
from octavo.engine.frames import FrameReader, encode
from octavo.engine.messages import AddItems, AddRequest, FromEngine, ItemOutput, ItemOutputs, Rejected, ToEngine
from octavo.engine.process import EngineProcess
from octavo.engine.sampling_params import SamplingParams


def test_a_flow_hands_on_what_came_and_then_its_end() -> None:
    async def main() -> None:
        sent: list[AddItems] = []
        flow = ItemFlow(sent.append)
        flow.send(items("a", [[1], [2]]))
        assert flow.num_open == 2 and len(sent) == 1
        flow.put([ItemOutput("a", 1, b"", 0)])
        flow.put([ItemOutput("a", 0, b"", 0)])
        assert [output.index for output in await flow.next()] == [1, 0] and flow.num_open == 0
        flow.put([])
        assert await flow.next() == []
        flow.fail(EngineDeadError("gone"))
        flow.fail(RequestError("later"))
        with pytest.raises(EngineDeadError, match="gone"):
            await flow.next()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_what_no_frame_holds_is_the_callers_error() -> None:
    def refuse(message: object) -> None:
        raise ValueError("a message of 70000000 bytes")

    flow = ItemFlow(refuse)
    with pytest.raises(RequestError, match="cannot be sent to the engine"):
        flow.send(items("a", [[1]]))
    assert flow.num_open == 0


def test_items_through_an_engine_process(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tiny_sentences.write_case("mean", tmp_path)
        engine = await AsyncEngine.start(EngineConfig(str(folder), platform="reference", num_threads=1), deadline_s=60)
        try:
            with engine.open_items("a") as flow:
                with pytest.raises(RequestError, match="'a' is in use"), engine.open_items("a"):
                    pass
                flow.send(items("a", [[5, 6], [7]], is_last=False))
                flow.send(items("a", [[8, 9, 10]], first=2))
                found: dict[int, ItemOutput] = {}
                while len(found) < 3:
                    found |= {output.index: output for output in await flow.next()}
                lengths = [np.linalg.norm(np.frombuffer(found[i].values, "<f4")) for i in range(3)]
                np.testing.assert_allclose(lengths, 1, atol=1e-6)
            with engine.open_items("b") as flow, pytest.raises(RequestError, match="token ids are 0 to"):
                flow.send(items("b", [[10**6]]))
                await flow.next()
            with pytest.raises(RequestError, match="gives vectors, not tokens"):
                async for _ in engine.submit(AddRequest("c", [1], SamplingParams())):
                    pass
            with engine.open_items("d") as flow:
                flow.send(items("d", [[5] * 60] * 400))
            for _ in range(100):  # what was left has been aborted
                stats = await engine.stats()
                if not stats["num_items_waiting"]:
                    break
                await asyncio.sleep(0.05)
            assert stats["num_aborts"] == 1 and stats["num_items"] < 400
        finally:
            await engine.close()

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_drain_takes_the_rest_of_what_is_open_and_nothing_new() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    with ours, theirs:
        process = EngineProcess(ours)
        process.core = core = make_core()
        process.add(items("a", [[1]], is_last=False))
        process.drain_until = float("inf")
        process.add(items("b", [[1]]))
        process.add(items("a", [[2]], first=1))
        process.send_outputs(core.step())
        found: list[object] = []
        reader = FrameReader(FromEngine)  # type: ignore[arg-type]
        while len(found) < 2:
            found += reader.feed(theirs.recv(1 << 16))
        refused, outputs = found
        assert isinstance(refused, Rejected) and (refused.request_id, refused.status) == ("b", 503)
        assert isinstance(outputs, ItemOutputs)
        assert [(output.request_id, output.index) for output in outputs.outputs] == [("a", 0), ("a", 1)]
        assert core.is_idle


def test_items_of_a_wrong_type_are_refused_alone() -> None:
    wrong = AddItems("x", "embed", "first", b"", b"")  # type: ignore[arg-type]
    (found,) = FrameReader(ToEngine).feed(encode(wrong))  # type: ignore[arg-type]
    assert found[0] == "x" and "int" in found[1]  # type: ignore[index]
