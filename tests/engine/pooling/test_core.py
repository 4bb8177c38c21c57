"""Steps hold what fits and agrees; what fails fails alone; what is not finite never leaves; messages are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.engine.server.fakes import FakeEngine
from tests.engine.server.poolers import POOLING, ScriptedTask

from octavo.engine.errors import RequestError
from octavo.engine.messages import AddItems, AddRequest, ItemOptions
from octavo.engine.pooling.core import Outcome, PoolingCore
from octavo.engine.pooling.fair import Work
from octavo.engine.sampling_params import SamplingParams


def make_core(task: Any = None, **limits: int) -> PoolingCore:
    info = msgspec.structs.replace(FakeEngine().info, pooling=POOLING)
    return PoolingCore({"embed": task or ScriptedTask()}, info, **{"max_batch_tokens": 40, "max_num_seqs": 4, **limits})


def items(name: str, texts: Sequence[Sequence[int]], **fields: Any) -> AddItems:
    ids = np.array([token for text in texts for token in text], "<i4").tobytes()
    counts = np.array([len(text) for text in texts], "<i4").tobytes()
    return AddItems(name, "embed", fields.pop("first", 0), ids, counts, **fields)


def test_a_step_holds_as_many_whole_items_as_fit() -> None:
    task = ScriptedTask()
    core = make_core(task)
    core.add(items("a", [[1] * 15, [1] * 15, [1] * 15, *([[1]] * 6)]))
    done = []
    while core.has_work:
        done.append([output.index for output in core.step()])
    assert done == [[0, 1], [2, 3, 4, 5], [6, 7, 8]]
    assert core.is_idle and core.stats()["num_items"] == 9 and core.stats()["num_item_tokens"] == 51


def test_items_of_other_options_wait_for_a_step_of_their_own() -> None:
    core = make_core()
    core.add(items("a", [[1], [2]]))
    core.add(items("b", [[3]], options=ItemOptions(normalize=True)))
    core.add(items("c", [[4]]))
    steps = [[(output.request_id, output.index) for output in core.step()] for _ in range(2)]
    assert steps == [[("a", 0), ("c", 0), ("a", 1)], [("b", 0)]] and not core.has_work


def test_results_carry_their_values_and_place() -> None:
    core = make_core()
    core.add(items("a", [[5, 6, 7], [9]], first=3, num_prompt=np.array([2, 0], "<i4").tobytes()))
    first, second = core.step()
    assert (first.index, first.width) == (3, 4) and np.frombuffer(first.values, "<f4").tolist() == [3, 5, 7, 2]
    assert second.index == 4 and np.frombuffer(second.values, "<f4").tolist() == [1, 9, 9, 0]


def test_a_value_that_is_not_finite_is_an_error_of_its_item() -> None:
    task = ScriptedTask()
    task.vector = lambda item: [float("nan" if item.index == 1 else item.index), 0, 0, 1]
    core = make_core(task)
    core.add(items("a", [[1]] * 3))
    outputs = core.step()
    assert [output.code for output in outputs] == ["engine_error", "not_finite", "engine_error"]
    assert [bool(output.error) for output in outputs] == [False, True, False] and outputs[1].values == b""
    assert core.num_failed == 1


def test_a_step_that_breaks_fails_the_culprit_alone(caplog: pytest.LogCaptureFixture) -> None:
    def task(step: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        if any(item.ids == [13] for item in step):
            raise RuntimeError("unlucky")
        return [Outcome(np.ones((1, 4), np.float32)) for _ in step]

    core = make_core(task)
    core.add(items("a", [[1], [13], [2]]))
    outputs = core.step()
    assert [bool(output.error) for output in outputs] == [False, True, False]
    assert "RuntimeError: unlucky" in outputs[1].error and "test_core.py" in caplog.text


def test_aborted_requests_end_and_others_go_on() -> None:
    core = make_core()
    core.add(items("a", [[1]] * 10))
    core.add(items("b", [[2]] * 2))
    core.step()
    assert core.abort("a") and not core.abort("a")
    left = []
    while core.has_work:
        left += core.step()
    assert {output.request_id for output in left} <= {"b"} and core.num_aborts == 1
    core.add(items("c", [[1]] * 2))
    assert [(o.request_id, o.index, o.error, o.code) for o in core.abort_all("the end")] == [
        ("c", 0, "the end", "aborted"),
        ("c", 1, "the end", "aborted"),
    ]
    assert core.is_idle


def test_a_request_of_which_more_is_to_come_is_open_without_work() -> None:
    core = make_core()
    core.add(items("a", [[1]], is_last=False))
    core.step()
    assert not core.has_work and not core.is_idle
    core.add(items("a", [], first=1))
    assert core.is_idle


BAD = {
    "a task it does not do": AddItems("a", "sing", 0, b"", b""),
    "0 to 268": items("a", [[-1]]),
    "ids are 0": items("a", [[10**6]]),
    "1 to 32 tokens": items("a", [[1] * 33]),
    "1 to 32": items("a", [[1], []]),
    "add up": AddItems("a", "embed", 0, bytes(8), np.array([1], "<i4").tobytes()),
    "do not add up": AddItems("a", "embed", 0, bytes(4), b""),
    "whole int32": AddItems("a", "embed", 0, bytes(5), bytes(4)),
    "fit the items": items("a", [[1]], num_prompt=bytes(8)),
    "segments do not fit": items("a", [[1]], segments=bytes(2)),
    "num_unseen or marks do not fit": items("a", [[1]], marks=bytes(2)),
    "num_unseen or marks do": items("a", [[1]], num_unseen=bytes(8)),
    "less than the tokens of an item": items("a", [[1, 2]], num_unseen=np.array([2], "<i4").tobytes()),
    "num_unseen is less": items("a", [[1, 2]], num_unseen=np.array([-1], "<i4").tobytes()),
    "this model gives": items("a", [[1]], options=ItemOptions(outputs=("sparse",))),
    "dimensions is 5": items("a", [[1]], options=ItemOptions(dimensions=5)),
    "gives vectors, not tokens": AddRequest("a", [1], SamplingParams()),
}


@pytest.mark.parametrize("why", BAD)
def test_what_does_not_fit_is_refused(why: str) -> None:
    core = make_core()
    pattern = "task 'sing': this model does embed" if why.startswith("a task") else why
    with pytest.raises(RequestError, match=pattern):
        core.add(BAD[why])
    assert core.is_idle
