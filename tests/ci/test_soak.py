"""The soak's promises can break: growing memory, held blocks, lost answers, wrong texts are each found."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from ci.soak import REFUSALS, Books, Client, counter_problems, idle_problems, memory_problems


def series(*sizes: float) -> list[tuple[float, int]]:
    return [(float(at), int(size * 1e6)) for at, size in enumerate(sizes)]


def test_flat_memory_is_fine_and_growth_is_not() -> None:
    warm_then_flat = series(*range(50, 100, 5), *[100] * 20, *[104] * 10)
    assert memory_problems({"api": warm_then_flat}, 15, 39) == []
    leak = series(*[100 + at for at in range(40)])
    assert memory_problems({"engine": leak}, 15, 39) == ["memory: engine grew from 117.0 to 137.0 MB"]


def test_a_process_that_was_not_seen_is_a_problem() -> None:
    assert memory_problems({"api": series(1, 1, 1)}, 10, 40) == ["memory: api was not seen in both windows"]


@pytest.mark.parametrize("name", ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"])
def test_what_is_held_after_the_end_is_found(name: str) -> None:
    metrics = {f'octavo:{key}{{model_name="m"}}': 0.0 for key in ("num_requests_running", "kv_cache_usage_perc")}
    assert idle_problems(metrics) == []
    problems = idle_problems({**metrics, f'octavo:{name}{{model_name="m"}}': 0.25})
    assert problems == [f"blocks: {name} is 0.25 with no client left"]


def metrics(stop: int, length: int, error: int, tokens: int, refused: int) -> dict[str, float]:
    success = 'octavo:request_success_total{model_name="m",finished_reason="%s"}'
    return {
        success % "stop": stop, success % "length": length, success % "error": error, success % "abort": 9,
        'octavo:generation_tokens_total{model_name="m"}': tokens,
        'octavo:http_responses_total{model_name="m",route="/v1/completions",status="400"}': refused,
        'octavo:http_responses_total{model_name="m",route="/v1/completions",status="200"}': 99,
    }  # fmt: skip


BEFORE = metrics(1, 0, 0, 1, 2)


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (metrics(5, 3, 0, 50, 4), []),
        (metrics(6, 3, 0, 50, 4), []),  # the answer a client left was whole already
        (metrics(5, 2, 0, 50, 4), ["counters: 6 finished"]),
        (metrics(7, 3, 0, 50, 4), ["counters: 9 finished"]),
        (metrics(5, 3, 1, 50, 4), ["errors: 1 choices finished with an error"]),
        (metrics(5, 3, 0, 30, 4), ["counters: 29 generated"]),
        (metrics(5, 3, 0, 50, 5), ["counters: 3 answers of status 400"]),
    ],
)
def test_counters_that_differ_from_the_clients_books_are_found(after: dict[str, float], says: list[str]) -> None:
    books = Books(statuses=Counter({400: 2, 200: 8}), choices=7, left=1, tokens=40)
    found = counter_problems(books, BEFORE, after)
    assert len(found) == len(says) and all(text.startswith(start) for text, start in zip(found, says, strict=True))


class Scripted:
    """A server that answers what it is told."""

    def __init__(self, status: int, answer: Any, events: list[Any] | None = None) -> None:
        self.status, self.answer, self.events = status, answer, events or []

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        return self.status, self.answer

    def stream(self, path: str, body: Any) -> Any:
        yield from self.events


def whole(*texts: str, reason: str = "length") -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": reason} for text in texts], "usage": {"completion_tokens": 4}}


@pytest.mark.parametrize(
    ("kind", "server", "says"),
    [
        ("whole", Scripted(200, whole("x")), ""),
        ("whole", Scripted(200, whole("x", reason="error")), "errors: whole"),
        ("whole", Scripted(500, {"error": {}}), "errors: whole: status 500"),
        ("whole", Scripted(200, {}), "errors: whole: KeyError"),
        ("several", Scripted(200, whole("x", "y")), "errors: several"),
        ("stops", Scripted(200, whole("6, 7, 8, 9")), "errors: stops"),
        ("refused", Scripted(200, whole("x")), "errors: refused"),
        ("stream", Scripted(200, None, [{"choices": []}]), "errors: stream"),
    ],
)
def test_wrong_answers_are_noticed(kind: str, server: Any, says: str) -> None:
    books = Books()
    client = Client(server, books, 1)
    client._kinds = [getattr(client, kind)]
    client.turn()
    assert len(books.problems) == bool(says) and all(text.startswith(says) for text in books.problems)


def test_a_seeded_text_that_changes_is_noticed() -> None:
    books = Books()
    for text in ("a", "a", "b"):
        books.repeated(1, text)
    assert len(books.problems) == 1 and "seed 1" in books.problems[0]


def test_every_kind_of_request_comes_up() -> None:
    client = Client(Scripted(200, None), Books(), 5)  # type: ignore[arg-type]
    names = {random.Random(i).choice(client._kinds).__name__ for i in range(400)}
    assert names == {"stream", "whole", "several", "stops", "long", "shared", "seeded", "leaves", "refused"}
    assert {status for _, _, status in REFUSALS} == {400, 404}
