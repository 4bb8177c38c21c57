"""`octavo rerank MODEL FILE --query TEXT`: documents of a file or pipe, best first, as JSON lines.

With `--in-order`, and where every line has a query of its own, a line is written for every line read, some at a time, and
`--resume` goes on. A document that has no score is written with its error and costs only itself; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from itertools import islice
from typing import Any

from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.lines import add_encoder, add_lines, encoder_options, open_lines, picked, value_of
from octavo.engine.server.commands.options import add_model, positive
from octavo.engine.starting import settle

DESCRIPTION = "Score documents against a query and write them, best first, as JSON lines."
EXAMPLES = """\
  octavo rerank ./model docs.txt --query "What is gravity?" --top-n 10
  octavo rerank ./model docs.jsonl --field body --query "What is gravity?" --truncate only_second --return-documents
  octavo rerank ./model pairs.jsonl --output scores.jsonl --resume      # objects with query and text
"""
CHUNK = 256  # lines that are in memory at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add_lines(
        parser, "a document per line", "a text, or an object that has it in --field, and without --query a query, too"
    )
    add = parser.add_argument
    add("--query", metavar="TEXT", help="what documents answer (default: each line's own, in --query-field)")
    add("--query-field", default="query", metavar="NAME", help="where an object has its query (default query)")
    add("--top-n", type=positive, metavar="N", help="write the N best (default: all)")
    add("--in-order", action="store_true", help="write scores in the order of the lines")
    add("--return-documents", action="store_true", help="write each document's text, too")
    add("--raw-scores", action="store_true", help="scores as the model gives them, without its activation")
    add("--prompt-name", metavar="NAME", help="one of the model's prompts, put before the query")
    add("--instruction", metavar="TEXT", help="what fitting means, of models that are asked whether a document fits")
    add(
        "--truncate",
        choices=("error", "longest_first", "only_second"),
        default="error",
        help="what a pair too long loses (default error)",
    )
    add_encoder(parser)


def run(args: argparse.Namespace) -> int:
    """Scores, and ranks where there is one query."""
    is_ranked = args.query is not None and not args.in_order
    if is_ranked and args.resume:
        raise ConfigError("--resume goes on with lines in order, and a ranking is written at its end; add --in-order")
    if args.top_n is not None and not is_ranked:
        raise ConfigError("--top-n is of a ranking; give --query, and not --in-order")
    if args.query == "":
        raise ConfigError("--query is empty; give a text")

    from octavo.engine.reranker import Ranked, Reranker, Score, ranked
    from octavo.engine.server.commands.progress import progress_bar

    with progress_bar() as progress:
        reranker = Reranker(args.model, progress=progress, **encoder_options(args))
    settle()
    activation: Any = "none" if args.raw_scores else None
    scores: list[Score] = []
    extras: list[dict[str, Any]] = []
    num_failed = num_done = 0
    with contextlib.ExitStack() as stack:
        lines, out, index = open_lines(args, stack)
        while chunk := list(islice(lines, CHUNK)):
            rows = [_pair(line, args) for line in chunk]
            found = reranker.score_each(
                [pair for pair, _, _ in rows],
                prompt_name=args.prompt_name,
                instruction=args.instruction,
                truncate=args.truncate,
                activation=activation,
            )
            for (_, kept, problem), item in zip(rows, found, strict=True):
                score = Score(None, error=problem) if problem else item
                num_failed += bool(score.error)
                if is_ranked:
                    scores.append(score)
                    extras.append(kept)
                else:
                    one = Ranked(index, score.score, score.num_tokens, score.truncated_from, score.error)
                    print(json.dumps(_row(one, kept), ensure_ascii=False), file=out)
                index += 1
            out.flush()
            num_done += len(chunk)
            if sys.stderr.isatty():
                print(f"\r{num_done} documents", end="", file=sys.stderr)
        for one in ranked(scores, args.top_n):
            print(json.dumps(_row(one, extras[one.index]), ensure_ascii=False), file=out)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if num_failed:
        print(f"octavo: {num_failed} of {num_done} documents have no score; their lines say why", file=sys.stderr)
    return 1 if num_failed else 0


def _pair(line: str, args: argparse.Namespace) -> tuple[Any, dict[str, Any], str]:
    """((query, document), what is kept of the object, what is wrong with the line)."""
    value, problem = value_of(line, args)
    if problem:
        return ("", ""), {}, problem
    text, kept, problem = picked(value, args.field)
    query = args.query
    if query is None:
        query = value.get(args.query_field) if isinstance(value, dict) else None
        if query is None and not problem:
            problem = f"the line has no query ({args.query_field!r} of a JSON object); give --query, or JSON lines that have one"
    if args.return_documents and not problem:
        kept = {**kept, "text": text}
    return (query, text), kept, problem


def _row(one: Any, kept: dict[str, Any]) -> dict[str, Any]:
    """One line of the output."""
    if one.score is None:
        return {"index": one.index, **kept, "error": one.error}
    cut = {"truncated_from": one.truncated_from} if one.truncated_from else {}
    return {"index": one.index, **kept, "score": one.score, "num_tokens": one.num_tokens, **cut}
