"""From process start to the first token with SmolLM2, page cache warm; and what `import octavo` costs.

    octavo bench startup -- [--peer-python /path/with/llama-cpp/bin/python]

startup.generate       `octavo generate`: process start to the first text on stdout (< 0.6 s wanted); peer llama.cpp, one token
startup.serve          `octavo serve` with a warm packed cache: to the first streamed token of a chat request (< 1.0 s)
startup.serve_unpacked the same without packed weights on disk (< 1.5 s)
startup.import         `import octavo` in a fresh interpreter, the interpreter's own start taken off (< 0.3 s)
startup.modules        modules that import loads; heavy ones are named
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.common import MODEL, Call, Peer, Samples, interleave, measure, parser, report, row
from benchmarks.processes import PEERS, PeerProcess, Server, environment, model_file, octavo, seconds_to_first_output

HEAVY = ("torch", "numba", "transformers", "onnxruntime", "pandas", "scipy", "numpy")
CHAT = {"messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 4, "temperature": 0}


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


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    path = str(model_file(args.model))
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
    yield row("startup.generate", "s", found["ours"], peer=peer, threads=args.threads)

    for name, packed in (("startup.serve", "on"), ("startup.serve_unpacked", "off")):
        with tempfile.TemporaryDirectory() as cache:
            call = lambda: serve_seconds(path, args.threads, cache, packed)  # noqa: B023, E731
            yield row(name, "s", measure(call, args.repeats, budget_s=args.budget, warm=2), threads=args.threads)
    yield from import_rows(args.repeats, args.budget)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default=MODEL)
    options.add_argument("--peer-python", help="a Python with llama-cpp-python")
    args = options.parse_args()
    report(results(args), args, "startup")


if __name__ == "__main__":
    main()
