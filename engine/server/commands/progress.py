"""Progress of long steps: a bar on a terminal, one line per step elsewhere; always on stderr.

rich is imported only for a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Gives `progress(what, done_bytes, total_bytes)`; total 0 means unknown."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with _bars() as bars:
        yield bars


class _Lines:
    """One line when a step begins, one when it is done."""

    def __init__(self) -> None:
        self._seen: dict[str, bool] = {}

    def __call__(self, what: str, done_bytes: int, total_bytes: int) -> None:
        if what not in self._seen:
            size = f" ({total_bytes / 1e6:.1f} MB)" if total_bytes else ""
            print(f"{what}{size}", file=sys.stderr, flush=True)
            self._seen[what] = False
        if total_bytes and done_bytes >= total_bytes and not self._seen[what]:
            self._seen[what] = True
            print(f"{what}: done", file=sys.stderr, flush=True)


@contextmanager
def _bars() -> Iterator[Progress]:
    """rich's bars, made at the first call: a model that is already there shows none."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        bar = None
        tasks: dict[str, object] = {}

        def report(what: str, done_bytes: int, total_bytes: int) -> None:
            nonlocal bar
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as RichProgress

            if bar is None:
                columns = (
                    TextColumn("{task.description}"),
                    BarColumn(),
                    DownloadColumn(),
                    TransferSpeedColumn(),
                    TimeRemainingColumn(),
                )
                bar = stack.enter_context(RichProgress(*columns, console=Console(stderr=True)))
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total_bytes or None)
            bar.update(tasks[what], completed=done_bytes, total=total_bytes or None)  # type: ignore[arg-type]

        yield report
