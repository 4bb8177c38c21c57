"""The server's log: one line per event on stderr. Prompts, answers and keys are never written.

A fault is logged as its exception type and the places it passed through, without its message, because the message of an
exception may quote what a user sent.
"""

from __future__ import annotations

import logging
import sys

from octavo.engine.errors import trace_of

LOG = logging.getLogger("octavo.server")


def setup_logging(level: str) -> None:
    """Sends the log to stderr; `level` is debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    for log in (LOG, logging.getLogger("octavo.engine")):  # the latter: of the engine's client in this process
        log.handlers[:] = [handler]
        log.setLevel(level.upper())
        log.propagate = False


def log_fault(error: BaseException, request_id: str) -> None:
    """An unexpected exception: its type and where it went."""
    LOG.error("request %s: %s", request_id, trace_of(error))
