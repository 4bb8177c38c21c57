"""How much disk and memory it takes: installed size without extras, our own wheel, peak memory of a server under SmolLM2.

    octavo bench size -- [--wheel PATH] [--peer-python /path/with/llama-cpp/bin/python]

size.installed        octavo and everything it requires, from the records of this environment (<= 200 MB wanted)
size.installed_no_pyc the same without .pyc files (<= 150 MB)
size.wheel            our wheel (<= 15 MB): --wheel, or the newest under dist/ or build/
size.serving          peak resident memory of API and engine process together after a mixed load (<= 450 MB); peer llama.cpp
                      in one process after a prompt and an answer
MB are 10^6 bytes. Memory that both processes share (the file map of the weights) counts in each, as the kernel counts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from benchmarks.common import MODEL, ROOT, Peer, Samples, parser, report, row, say
from benchmarks.processes import PeerProcess, Server, memory_bytes, model_file

MB = 1e6


def closure(package: str) -> dict[str, tuple[int, int]]:
    """Distribution -> (bytes, bytes of .pyc) of a package and all it requires here, extras left out."""
    from packaging.requirements import Requirement

    found: dict[str, tuple[int, int]] = {}
    waiting = [package]
    while waiting:
        name = waiting.pop().lower().replace("_", "-").replace(".", "-")
        if name in found:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            if name == package:
                raise
            say(f"{name} is required but not installed; it does not count")
            found[name] = (0, 0)
            continue
        sizes = [(str(file), Path(str(dist.locate_file(file)))) for file in dist.files or []]
        present = [(text, path.stat().st_size) for text, path in sizes if path.is_file()]
        found[name] = (sum(size for _, size in present), sum(size for text, size in present if text.endswith(".pyc")))
        for text in dist.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def installed_rows() -> Iterator[dict[str, Any]]:
    """Sizes by distribution, largest first."""
    try:
        found = closure("octavo")
    except (PackageNotFoundError, ImportError) as error:
        say(
            f"installed size is not measured: {error}; run this with an environment that has octavo and packaging installed"
        )
        return
    parts = {name: round(size / MB, 2) for name, (size, _) in sorted(found.items(), key=lambda item: -item[1][0])}
    total, compiled = (sum(sizes[i] for sizes in found.values()) for i in (0, 1))
    yield row("size.installed", "MB", [total / MB], parts=parts)
    yield row("size.installed_no_pyc", "MB", [(total - compiled) / MB])


def wheel_rows(given: Path | None) -> Iterator[dict[str, Any]]:
    """The wheel, if there is one."""
    wheels = (
        [given]
        if given
        else sorted(
            (path for folder in ("dist", "build") for path in (ROOT / folder).rglob("octavo-*.whl")),
            key=lambda path: path.stat().st_mtime,
        )
    )
    if not wheels:
        say("there is no wheel under dist/ or build/; build one or give --wheel")
        return
    yield row("size.wheel", "MB", [wheels[-1].stat().st_size / MB], file=wheels[-1].name)


def serving_bytes(model: str, threads: int) -> dict[str, int]:
    """Peak memory by process after 12 requests, four at a time, one of them long."""
    with Server(model, "--threads", str(threads)) as server:
        server.wait_ready()

        def ask(i: int) -> int:
            words = " ".join(f"word{i * 1000 + j}" for j in range(300 if i == 0 else 20))
            body = {"messages": [{"role": "user", "content": words}], "max_tokens": 32, "temperature": 0}
            return server.post("/v1/chat/completions", body)[0]

        with ThreadPoolExecutor(4) as pool:
            statuses = list(pool.map(ask, range(12)))
        if set(statuses) != {200}:
            raise RuntimeError(f"the server answered {sorted(set(statuses))}")
        return {name: memory_bytes(pid) for name, pid in server.pids().items()}


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    yield from installed_rows()
    yield from wheel_rows(args.wheel)
    path = str(model_file(args.model))
    peer = None
    if args.peer_python:
        with PeerProcess(args.peer_python, "llamacpp.py", path, str(args.threads)) as process:
            process.ask(do="generate", prompts=[list(range(1000, 1300))], new=8)
            peer = Peer(process.name, process.version, Samples([process.ask(do="memory")["bytes"] / MB], [0.0]))
    found = serving_bytes(path, args.threads)
    parts = {name: round(size / MB, 1) for name, size in found.items()}
    yield row(
        "size.serving", "MB", Samples([sum(found.values()) / MB], [0.0]), peer=peer, threads=args.threads, parts=parts
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default=MODEL)
    options.add_argument("--wheel", type=Path, help="the wheel to weigh")
    options.add_argument("--peer-python", help="a Python with llama-cpp-python")
    args = options.parse_args()
    report(results(args), args, "size")


if __name__ == "__main__":
    main()
