"""The queue and its policies."""

from __future__ import annotations

import random

import pytest

from octavo.engine.request import Request, Status
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.waiting import WaitingQueue, fcfs, priority


def make(order, **kwargs):
    request = Request(f"r{order}", [1], SamplingParams(), **kwargs)
    request.order = (order,)
    return request


def test_smallest_order_first_whatever_the_pushes():
    queue = WaitingQueue()
    requests = [make(i) for i in range(50)]
    for request in random.Random(1).sample(requests, 50):
        queue.push(request)
    assert len(queue) == 50
    assert [queue.pop() for _ in range(50)] == requests and queue.peek() is None and len(queue) == 0


def test_leaving_from_the_middle():
    queue = WaitingQueue()
    requests = [make(i) for i in range(300)]
    for request in requests:
        queue.push(request)
    for request in requests[:298]:
        request.status = Status.FINISHED
        queue.discard()
    assert len(queue) == 2 and queue.peek() is requests[298] and len(queue._heap) < 100
    assert queue.pop() is requests[298] and queue.pop() is requests[299] and queue.peek() is None


def test_fcfs_ignores_priority():
    assert fcfs(make(1, priority=9)) == fcfs(make(2, priority=-9))


def test_waiting_outweighs_priority_after_the_ageing_time():
    key = priority(10.0)
    old = make(1, priority=2, arrival_s=100.0)
    assert key(make(2, priority=0, arrival_s=119.0)) < key(old)
    assert key(make(2, priority=0, arrival_s=121.0)) > key(old)
    assert key(make(2, priority=2, arrival_s=99.0)) < key(old)
    with pytest.raises(ValueError, match="ageing_s"):
        priority(0.0)
