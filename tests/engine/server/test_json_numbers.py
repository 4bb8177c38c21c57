"""Numbers have about as many digits as float32 and read back as the same bits; nothing that is not finite is written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from octavo.engine.errors import InternalError
from octavo.engine.server.json_numbers import base64_of, joined, json_numbers


@pytest.mark.parametrize("scale", [1.0, 0.05, 1e-4, 1e-30, 1e4, 3e38])
def test_numbers_read_back_as_the_same_bits(scale: float) -> None:
    with np.errstate(over="ignore"):
        values = (np.random.default_rng(7).uniform(-1, 1, 4000) * scale).astype(np.float32)
    values[:6] = [0.0, -0.0, 1.0, 0.5, np.finfo(np.float32).tiny, 1e-45]
    assert np.array(json.loads(json_numbers(values)), np.float32).tobytes() == values.tobytes()


def test_numbers_are_short() -> None:
    values = np.random.default_rng(1).standard_normal(384).astype(np.float32)
    values /= np.linalg.norm(values)
    assert len(json_numbers(values)) < 13.5 * 384
    assert json_numbers(np.array([0.125, -0.25, 3, 1e-3], np.float32)) == b"[0.125,-0.25,3.0,0.001]"


def test_rows_are_arrays_of_arrays() -> None:
    assert json_numbers(np.array([[0.5, 1], [2, 0.75]], np.float32)) == b"[[0.5,1.0],[2.0,0.75]]"
    assert joined([b"[1]", b"[2]"]) == b"[[1],[2]]" and joined([]) == b"[]"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_json_has_no_number_for_is_an_error(bad: float) -> None:
    with pytest.raises(InternalError, match="not finite"):
        json_numbers(np.array([0.5, bad], np.float32))


def test_base64() -> None:
    assert base64_of(np.array([1.0, -2.0, 0.5, 0.25], "<f4").tobytes()) == b'"AACAPwAAAMAAAAA/AACAPg=="'
