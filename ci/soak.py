"""A mixed load of several clients against a real `octavo serve`, then the books must balance.

    ci/soak [MINUTES] [--clients N] [--model MODEL] [--json]

Loopback only; each client waits for its answer before it asks again, so the load is bounded. Streams, whole answers, several
choices, stop strings, long and shared prompts, seeded repeats, clients that leave, and requests that must be refused.
At the end, and why each is a promise:

  memory      what each process owns (RssAnon) is flat within 5 % between the end of the warm-up and the end
  blocks      no KV block is in use, nothing runs and nothing waits once the clients are gone
  errors      every answer was the one expected; no finish for the reason error
  counters    finished choices, refusals and generated tokens counted by the server are those the clients saw
  repeats     a seeded request gave the same text every time, whatever ran beside it

The KV pool is small on purpose, so that it is full early (memory it owns is touched, requests are preempted). Exit status 1
when a promise broke.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import MODEL, say
from benchmarks.processes import Server, labelled_metrics, memory_bytes

KV_GIB = "0.08"
MAX_LEN = 2048
FLAT_SHARE = 0.05
SAMPLE_S = 1.0
WORDS = (
    "river",
    "stone",
    "maps",
    "light",
    "under",
    "seven",
    "winters",
    "a",
    "quiet",
    "harbour",
    "kept",
    "bread",
    "salt",
)
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass
class Books:
    """What the clients saw. `choices` finished whole, `left` choices of answers a client walked away from."""

    answers: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    choices: int = 0
    left: int = 0
    tokens: int = 0
    problems: list[str] = field(default_factory=list)
    repeats: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, status: int, *, choices: int = 0, left: int = 0, tokens: int = 0) -> None:
        """One answer."""
        with self.lock:
            self.answers[kind] += 1
            self.statuses[status] += 1
            self.choices += choices
            self.left += left
            self.tokens += tokens

    def problem(self, text: str) -> None:
        """Something that must not be."""
        with self.lock:
            if len(self.problems) < 50:
                self.problems.append(text)

    def repeated(self, seed: int, text: str) -> None:
        """The text of a seeded request; another than before is a problem."""
        with self.lock:
            known = self.repeats.setdefault(seed, text)
        if known != text:
            self.problem(f"repeats: seed {seed} gave {text!r} after {known!r}")


def words(rng: random.Random, count: int) -> str:
    """Some text."""
    return " ".join(rng.choice(WORDS) for _ in range(count))


class Client:
    """One client; `turn` asks one random thing and checks the answer."""

    def __init__(self, server: Server, books: Books, seed: int) -> None:
        self.server, self.books, self.rng = server, books, random.Random(seed)
        kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.stream), (3, self.whole), (2, self.several), (2, self.stops), (1, self.long), (2, self.shared),
            (2, self.seeded), (2, self.leaves), (3, self.refused),
        ]  # fmt: skip
        self._kinds = [call for weight, call in kinds for _ in range(weight)]

    def turn(self) -> None:
        """One request. Anything unexpected becomes a problem, never an exception."""
        call = self.rng.choice(self._kinds)
        try:
            call()
        except (OSError, http.client.HTTPException, RuntimeError, ValueError, KeyError) as error:
            self.books.problem(f"errors: {call.__name__}: {type(error).__name__}: {error}")

    def stream(self) -> None:
        body = self._chat(words(self.rng, 12), 40) | {"stream_options": {"include_usage": True}}
        finishes, tokens = [], 0
        for event in self.server.stream(CHAT, body):
            finishes += [c["finish_reason"] for c in event["choices"] if c["finish_reason"]]
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        self._check("stream", len(finishes) == 1 and 0 < tokens <= 40, f"{finishes}, {tokens} tokens")
        self.books.note("stream", 200, choices=len(finishes), tokens=tokens)

    def whole(self) -> None:
        self._ask("whole", TEXT, {"prompt": words(self.rng, 8), "max_tokens": 24, "temperature": 0.7, "top_p": 0.9})

    def several(self) -> None:
        self._ask("several", CHAT, self._chat(words(self.rng, 6), 12) | {"n": 3}, choices=3)

    def stops(self) -> None:
        found = self._ask(
            "stops", TEXT, {"prompt": "1, 2, 3, 4, 5,", "max_tokens": 48, "temperature": 0, "stop": [" 9", "\n"]}
        )
        self._check("stops", all(" 9" not in choice["text"] for choice in found), repr(found)[:200])

    def long(self) -> None:
        self._ask("long", TEXT, {"prompt": words(self.rng, self.rng.randrange(400, 900)), "max_tokens": 4})

    def shared(self) -> None:
        prefix = words(random.Random(7), 120)
        self._ask("shared", TEXT, {"prompt": f"{prefix} {words(self.rng, 5)}", "max_tokens": 8})

    def seeded(self) -> None:
        seed = self.rng.randrange(6)
        body = {"prompt": words(random.Random(seed), 10 + seed), "max_tokens": 16, "temperature": 1.0, "seed": seed}
        found = self._ask("seeded", TEXT, body)
        self.books.repeated(seed, found[0]["text"] if found else "")

    def leaves(self) -> None:
        events = self.server.stream(CHAT, self._chat(words(self.rng, 10), 400))
        for _ in range(self.rng.randrange(1, 5)):
            next(events, None)
        events.close()  # type: ignore[attr-defined]
        self.books.note("leaves", 200, left=1)

    def refused(self) -> None:
        path, body, expected = self.rng.choice(REFUSALS)
        status, answer = self.server.post(path, body)
        self._check(
            "refused", status == expected and "error" in answer, f"{json.dumps(body)[:80]} got {status}: {answer}"
        )
        self.books.note("refused", status)

    def _chat(self, text: str, max_tokens: int) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0.8}

    def _ask(self, kind: str, path: str, body: dict[str, Any], choices: int = 1) -> list[dict[str, Any]]:
        """A whole answer, checked for what all have in common."""
        status, answer = self.server.post(path, body)
        if status != 200:
            self.books.problem(f"errors: {kind}: status {status}: {str(answer)[:200]}")
            self.books.note(kind, status)
            return []
        found = list(answer["choices"])
        is_right = len(found) == choices and all(c["finish_reason"] in ("stop", "length") for c in found)
        self._check(kind, is_right, str(answer)[:300])
        self.books.note(kind, status, choices=len(found), tokens=answer["usage"]["completion_tokens"])
        return found

    def _check(self, kind: str, is_right: bool, text: str) -> None:
        if not is_right:
            self.books.problem(f"errors: {kind}: {text}")


#: (path, body, status) of requests that must be refused
REFUSALS: list[tuple[str, dict[str, Any], int]] = [
    (TEXT, {"prompt": "x", "temperature": 9}, 400),
    (TEXT, {"prompt": "x", "no_such_field": 1}, 400),
    (TEXT, {"prompt": [1, 2, 10**9], "max_tokens": 1}, 400),
    (TEXT, {"prompt": [5] * (MAX_LEN + 1), "max_tokens": 1}, 400),
    (TEXT, {"prompt": "x", "n": 100000}, 400),
    (CHAT, {"messages": []}, 400),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "model": "nobody"}, 404),
]


# -- promises ----------------------------------------------------------------------------------------------------------
def memory_problems(series: dict[str, list[tuple[float, int]]], warm_s: float, end_s: float) -> list[str]:
    """Processes whose own memory grew by more than 5 % from the window after `warm_s` to the last one (equal windows)."""
    out = []
    window = max((end_s - warm_s) * 0.2, 3 * SAMPLE_S)
    for name, samples in series.items():
        first = [size for at, size in samples if warm_s <= at <= warm_s + window]
        last = [size for at, size in samples if at >= end_s - window]
        if not first or not last:
            out.append(f"memory: {name} was not seen in both windows")
            continue
        before, after = statistics.median(first), statistics.median(last)
        if after > before * (1 + FLAT_SHARE):
            out.append(f"memory: {name} grew from {before / 1e6:.1f} to {after / 1e6:.1f} MB")
    return out


def counter_problems(books: Books, before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Where the server's counters and the clients' books differ. Keys are those of `labelled_metrics`."""

    def grown(start: str, *labels: str) -> int:
        keys = [key for key in after if key.startswith(start) and all(label in key for label in labels)]
        return int(sum(after[key] - before.get(key, 0.0) for key in keys))

    out = []
    finished = sum(
        grown("octavo:request_success_total", f'finished_reason="{reason}"') for reason in ("stop", "length")
    )
    if not books.choices <= finished <= books.choices + books.left:
        out.append(f"counters: {finished} finished choices, clients saw {books.choices} (and left {books.left})")
    failed = grown("octavo:request_success_total", 'finished_reason="error"')
    if failed:
        out.append(f"errors: {failed} choices finished with an error")
    tokens = grown("octavo:generation_tokens_total")
    if tokens < books.tokens:
        out.append(f"counters: {tokens} generated tokens, clients saw {books.tokens}")
    for status in (400, 404, 429, 500, 503):
        counted = grown("octavo:http_responses_total", f'status="{status}"')
        if counted != books.statuses[status]:
            out.append(f"counters: {counted} answers of status {status}, clients saw {books.statuses[status]}")
    return out


def idle_problems(metrics: dict[str, float]) -> list[str]:
    """What is still held although nobody asks."""
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    out = []
    for name in names:
        value = sum(v for key, v in metrics.items() if key.startswith(f"octavo:{name}"))
        if value:
            out.append(f"blocks: {name} is {value:g} with no client left")
    return out


# -- run ---------------------------------------------------------------------------------------------------------------
def watch(server: Server, series: dict[str, list[tuple[float, int]]], start: float, end: threading.Event) -> None:
    """Samples what each process owns until `end`."""
    pids = server.pids()
    while not end.wait(SAMPLE_S):
        with contextlib.suppress(OSError):  # a process that has ended is reported elsewhere
            for name, pid in pids.items():
                series.setdefault(name, []).append((time.monotonic() - start, memory_bytes(pid, "RssAnon")))


def settle(server: Server, deadline_s: float = 30.0) -> dict[str, float]:
    """Metrics once nothing is held any more, or those at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        metrics = labelled_metrics(server.get("/metrics")[1].decode())
        if not idle_problems(metrics) or time.monotonic() > end:
            return metrics
        time.sleep(0.1)


def soak(
    server: Server, minutes: float, num_clients: int
) -> tuple[Books, list[str], dict[str, list[tuple[float, int]]]]:
    """The load and its problems."""
    books, series, stop = Books(), {}, threading.Event()
    before = labelled_metrics(server.get("/metrics")[1].decode())
    start = time.monotonic()
    end_s = minutes * 60
    watcher = threading.Thread(target=watch, args=(server, series, start, stop), daemon=True)
    watcher.start()

    def work(seed: int) -> None:
        client = Client(server, books, seed)
        while time.monotonic() - start < end_s and server.process.poll() is None:
            client.turn()

    clients = [threading.Thread(target=work, args=(100 + i,), daemon=True) for i in range(num_clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(end_s + 300)
    stop.set()
    watcher.join(5)
    problems = list(books.problems)
    if any(thread.is_alive() for thread in clients):
        problems.append("errors: a client still waits for its answer five minutes after the end")
    if server.process.poll() is not None:
        return books, [*problems, f"errors: the server ended with status {server.process.returncode}"], series
    after = settle(server)
    problems += idle_problems(after) + counter_problems(books, before, after)
    problems += memory_problems(series, end_s * 0.4, end_s)
    return books, problems, series


def main(given: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("minutes", nargs="?", type=float, default=20.0)
    options.add_argument("--clients", type=int, default=6)
    options.add_argument("--model", default=MODEL)
    options.add_argument("--json", action="store_true", help="print one JSON object at the end")
    args = options.parse_args(given)
    size = ["--kv-gib", KV_GIB, "--max-model-len", str(MAX_LEN), "--max-num-seqs", "16"]
    with Server(args.model, *size) as server:
        server.wait_ready()
        books, problems, series = soak(server, args.minutes, args.clients)
    memory = {
        name: [round(size / 1e6, 1) for _, size in (s[0], s[len(s) // 2], s[-1])] for name, s in series.items() if s
    }
    found = {
        "minutes": args.minutes, "answers": dict(books.answers), "statuses": dict(books.statuses), "choices": books.choices,
        "tokens": books.tokens, "memory_mb": memory, "problems": problems,
    }  # fmt: skip
    if args.json:
        print(json.dumps(found))
    else:
        say(f"soak: {sum(books.answers.values())} answers in {args.minutes:g} minutes: {dict(books.answers)}")
        say(f"soak: own memory in MB at the start, in the middle, at the end: {memory}")
        for problem in problems:
            say(f"soak: {problem}")
    if not books.choices:
        say("soak: no answer came at all")
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
