"""A long list never makes a short request wait for all of it; shares are even; nothing is lost or left behind."""

from __future__ import annotations

from collections import Counter

from octavo.engine.messages import ItemOptions
from octavo.engine.pooling.fair import FairQueue, Work


def works(name: str, count: int, num_tokens: int = 10, first: int = 0) -> list[Work]:
    return [Work(name, first + i, "embed", ItemOptions(), [1] * num_tokens) for i in range(count)]


def taken(queue: FairQueue, count: int) -> list[str]:
    found = []
    for _ in range(count):
        shown = queue.peek()
        assert shown is not None and queue.pop(shown.key) is shown
        found.append(f"{shown.request_id}{shown.index}")
    return found


def test_one_request_keeps_its_order() -> None:
    queue = FairQueue()
    queue.push("a", works("a", 3))
    assert (queue.num_items, queue.num_tokens, queue.num_requests) == (3, 30, 1)
    assert taken(queue, 3) == ["a0", "a1", "a2"]
    assert queue.peek() is None and (queue.num_items, queue.num_tokens, queue.num_requests) == (0, 0, 0)


def test_a_short_request_goes_before_the_rest_of_a_list_of_ten_thousand() -> None:
    queue = FairQueue()
    queue.push("list", works("list", 10_000))
    taken(queue, 100)
    queue.push("short", works("short", 1))
    assert "short0" in taken(queue, 2)


def test_tokens_not_items_are_shared_evenly() -> None:
    queue = FairQueue()
    queue.push("long", works("long", 50, 30))
    queue.push("small", works("small", 200, 10))
    counts = Counter(name.rstrip("0123456789") for name in taken(queue, 100))
    assert counts["long"] == 25 and counts["small"] == 75


def test_who_comes_late_has_no_claim_on_the_past_and_who_was_idle_saves_nothing_up() -> None:
    queue = FairQueue()
    queue.push("a", works("a", 100), is_last=False)
    taken(queue, 100)
    queue.push("b", works("b", 100))
    taken(queue, 50)
    queue.push("a", works("a", 50, first=100))
    counts = Counter(name[0] for name in taken(queue, 40))
    assert sorted(counts.values()) in ([20, 20], [19, 21])


def test_one_key_is_taken_while_another_goes_first() -> None:
    queue = FairQueue()
    other = ItemOptions(normalize=True)
    queue.push("a", works("a", 2))
    queue.push("b", [Work("b", 0, "embed", other, [1])])
    queue.push("c", works("c", 1))
    key, first = ("embed", ItemOptions()), queue.peek()
    assert first is not None and first.request_id == "a"
    assert [queue.pop(key).request_id for _ in range(3)] == ["a", "c", "a"] and queue.peek(key) is None
    assert taken(queue, 1) == ["b0"]


def test_more_of_a_request_comes_behind_what_waits_and_its_line_ends_with_the_last() -> None:
    queue = FairQueue()
    queue.push("a", works("a", 1), is_last=False)
    assert taken(queue, 1) == ["a0"] and queue.num_requests == 1
    queue.push("a", works("a", 2, first=1), is_last=False)
    queue.push("a", [], is_last=True)
    assert taken(queue, 2) == ["a1", "a2"] and queue.num_requests == 0
    queue.push("b", works("b", 1), is_last=False)
    taken(queue, 1)
    queue.push("b", [], is_last=True)
    assert queue.num_requests == 0


def test_a_dropped_request_is_gone_and_its_name_may_come_again() -> None:
    queue = FairQueue()
    queue.push("a", works("a", 3))
    queue.push("b", works("b", 2))
    taken(queue, 1)
    assert [item.index for item in queue.drop("a")] == [1, 2] and queue.drop("a") == []
    assert queue.num_items == 2
    queue.push("a", works("a", 1, first=7))
    assert sorted(taken(queue, 3)) == ["a7", "b0", "b1"] and queue.peek() is None
    queue.push("c", works("c", 2))
    assert len(queue.drop_all()) == 2 and queue.peek() is None and queue.num_tokens == 0
