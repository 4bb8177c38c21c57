"""A fault is logged by type and place, never with its message, which may quote a prompt."""

from __future__ import annotations

import logging

import pytest

from octavo.engine.server.logs import LOG, log_fault, setup_logging


def test_fault_in_the_log_does_not_quote_what_a_user_sent(caplog: pytest.LogCaptureFixture) -> None:
    def inner() -> None:
        raise KeyError("canary-prompt")

    with caplog.at_level(logging.ERROR, "octavo.server"):
        try:
            inner()
        except KeyError as error:
            log_fault(error, "r1")
    assert "r1: KeyError at test_logs.py:" in caplog.text
    assert "canary" not in caplog.text


def test_log_goes_to_stderr_at_the_level_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    before = (LOG.handlers[:], LOG.level, LOG.propagate)
    try:
        setup_logging("warning")
        LOG.info("quiet")
        LOG.warning("loud")
    finally:
        LOG.handlers[:], LOG.propagate = before[0], before[2]
        LOG.setLevel(before[1])
    taken = capsys.readouterr()
    assert taken.out == ""
    assert "WARNING loud" in taken.err
    assert "quiet" not in taken.err
