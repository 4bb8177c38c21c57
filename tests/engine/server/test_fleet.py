"""Models of one server: whom a call is for, loading when a call comes, unloading when none does, failures that pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.engine.server.fakes import FakeEngine, make_text

from octavo.engine.errors import ConfigError, ModelError
from octavo.engine.models.kind import Kind
from octavo.engine.server.fleet import Fleet, Member
from octavo.engine.server.http import HttpError
from octavo.engine.server.state import ServerState, Settings


class Engine(FakeEngine):
    """Knows that it was closed."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed, self.is_alive = True, False


class Loader:
    """Gives engines, each after `delay_s`; the first `num_failures` loads fail."""

    def __init__(self, delay_s: float = 0.0, num_failures: int = 0) -> None:
        self.delay_s, self.num_failures = delay_s, num_failures
        self.engines: list[Engine] = []
        self.num_asked = 0

    async def __call__(self) -> Any:
        self.num_asked += 1
        await asyncio.sleep(self.delay_s)
        if self.num_asked <= self.num_failures:
            raise ModelError("there is a hole in the file")
        self.engines.append(Engine())
        return self.engines[-1], make_text()


def member(name: str = "m", load: Loader | None = None, kind: Kind = "generate", **how: Any) -> Member:
    return Member(ServerState(Settings((name, f"{name}-too"))), load or Loader(), kind=kind, **how)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def fleet() -> Fleet:
    kinds: list[tuple[str, Kind]] = [
        ("chat", "generate"),
        ("vec", "embed"),
        ("rank", "sequence"),
        ("rank2", "sequence"),
    ]
    return Fleet([member(name, kind=kind) for name, kind in kinds])


@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/chat/completions", "chat"), ("/v1/embeddings", "vec"), ("/embed", "vec"), ("/v2/embed", "vec")],
)
def test_a_call_without_name_is_for_the_one_that_answers_it(path: str, name: str) -> None:
    assert fleet().chosen(None, path).name == name


def test_a_call_that_two_would_answer_has_to_name_one() -> None:
    with pytest.raises(HttpError, match=r"/rerank: which model\? Name one of rank, rank2") as caught:
        fleet().chosen(None, "/rerank")
    assert (caught.value.status, caught.value.param) == (400, "model")
    assert fleet().chosen("rank2-too", "/rerank").name == "rank2"


def test_scores_are_the_rerankers_and_without_one_those_of_vectors() -> None:
    both = Fleet([member("chat"), member("vec", kind="embed"), member("rank", kind="sequence")])
    assert both.chosen(None, "/score").name == "rank" and both.chosen("vec", "/score").name == "vec"
    assert Fleet([member("chat"), member("vec", kind="embed")]).chosen(None, "/score").name == "vec"


def test_a_call_that_none_answers_says_what_is_served() -> None:
    two = Fleet([member("a"), member("b")])
    with pytest.raises(HttpError, match="none of the models answers it; served: a, b"):
        two.chosen(None, "/v1/embeddings")


def test_an_unknown_name_is_a_404_and_a_single_model_answers_for_itself() -> None:
    with pytest.raises(HttpError, match="'nobody' is not served here; served: chat, chat-too, vec") as caught:
        fleet().chosen("nobody", "/v1/embeddings")
    assert caught.value.status == 404
    assert Fleet([member("a")]).chosen(None, "/v1/embeddings").name == "a"


def test_names_that_two_models_have_are_refused() -> None:
    with pytest.raises(ConfigError, match="two models are called a; name them apart"):
        Fleet([member("a"), member("a")])


def test_the_start_loads_all_that_do_not_wait_for_a_call() -> None:
    async def scenario() -> None:
        first, second, third = Loader(), Loader(), Loader()
        found = Fleet([member("a", first), member("b", second, is_on_demand=True), member("c", third)])
        seconds = await found.start()
        assert [loader.num_asked for loader in (first, second, third)] == [1, 0, 1]
        assert set(seconds) == {"a.load", "a.first_token", "c.load", "c.first_token"}
        assert found.members[0].state.is_warm and not found.members[1].state.is_warm
        await found.close()
        assert first.engines[0].is_closed and third.engines[0].is_closed

    run(scenario)


def test_a_model_that_cannot_be_loaded_at_the_start_ends_the_others() -> None:
    async def scenario() -> None:
        slow = Loader(delay_s=30)
        with pytest.raises(ModelError, match="hole"):
            await Fleet([member("a", slow), member("b", Loader(num_failures=1))]).start()
        assert not slow.engines

    run(scenario)


def test_many_calls_wait_for_one_load_and_a_caller_that_goes_does_not_stop_it() -> None:
    async def scenario() -> None:
        load = Loader(delay_s=0.05)
        one = member(load=load, is_on_demand=True)
        calls = [asyncio.ensure_future(one.begin()) for _ in range(5)]
        await asyncio.sleep(0.01)
        calls[0].cancel()
        await asyncio.gather(*calls[1:])
        assert calls[0].cancelled() and load.num_asked == 1 and one.num_calls == 4 and one.state.is_warm

    run(scenario)


def test_a_load_that_fails_costs_those_who_wait_and_the_next_call_tries_again() -> None:
    async def scenario() -> None:
        load = Loader(delay_s=0.02, num_failures=1)
        one = member(load=load, is_on_demand=True)
        found = await asyncio.gather(one.begin(), one.begin(), return_exceptions=True)
        assert [getattr(error, "status", 0) for error in found] == [503, 503] and one.num_calls == 0
        assert "m cannot be loaded: there is a hole in the file" in str(found[0])
        await one.begin()
        assert load.num_asked == 2 and one.state.engine is load.engines[0]

    run(scenario)


def test_an_idle_model_is_unloaded_and_comes_back() -> None:
    async def scenario() -> None:
        load = Loader()
        one = member(load=load, unload_s=0.03)
        await one.load()
        await one.begin()
        await asyncio.sleep(0.1)
        assert one.state.engine is load.engines[0], "it is used"
        one.end()
        await until(lambda: one.state.engine is None)
        assert load.engines[0].is_closed and not one.state.is_warm
        await one.begin()
        assert one.state.engine is load.engines[1] and load.num_asked == 2
        one.end()

    run(scenario)


def test_calls_one_after_the_other_keep_a_model() -> None:
    async def scenario() -> None:
        load = Loader()
        one = member(load=load, unload_s=0.2)
        await one.load()
        for _ in range(12):
            await one.begin()
            await asyncio.sleep(0.02)
            one.end()
        assert load.num_asked == 1 and one.state.engine is not None

    run(scenario)


def test_a_load_nobody_waits_for_any_more_is_not_kept_for_ever() -> None:
    async def scenario() -> None:
        load = Loader(delay_s=0.02)
        one = member(load=load, is_on_demand=True, unload_s=0.02)
        call = asyncio.ensure_future(one.begin())
        await asyncio.sleep(0.005)
        call.cancel()
        await until(lambda: bool(load.engines) and load.engines[0].is_closed)
        assert one.state.engine is None

    run(scenario)


def test_a_model_on_demand_whose_engine_died_is_loaded_again() -> None:
    async def scenario() -> None:
        load = Loader()
        one = member(load=load, is_on_demand=True)
        await one.begin()
        load.engines[0].kill()
        await one.begin()
        assert one.state.engine is load.engines[1] and load.engines[0].is_closed

    run(scenario)


def test_a_model_that_drains_is_not_loaded() -> None:
    async def scenario() -> None:
        load = Loader()
        one = member(load=load, is_on_demand=True)
        one.state.is_draining = True
        await one.begin()
        assert not load.num_asked

    run(scenario)
