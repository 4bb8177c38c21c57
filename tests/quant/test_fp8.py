"""Eight-bit floats: all 256 codes of every dialect, and encoding against the nearest of them."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.quant.fp8 import DIALECTS, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, Fp8, fnuz_of

ALL = np.arange(256, dtype=np.uint8)
EACH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)


def codes(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def same(got: np.ndarray, want: list[float]) -> bool:
    """Equal values, signs of zeros included."""
    wanted = np.array(want, np.float32)
    return np.array_equal(got, wanted, equal_nan=True) and np.array_equal(
        np.signbit(got)[wanted == 0], np.signbit(wanted)[wanted == 0]
    )


def nearest(dialect: Fp8, x: float) -> set[int]:
    """The codes at least distance from a value that is not beyond the largest; the even one of two."""
    finite = [code for code in range(128) if np.isfinite(dialect.table[code])]
    gaps = {code: abs(float(dialect.table[code]) - abs(x)) for code in finite}
    best = [code for code, gap in gaps.items() if gap == min(gaps.values())]
    return {code for code in best if len(best) == 1 or code % 2 == 0}


def test_the_two_dialects_of_e4m3_read_bytes_as_their_specifications_say() -> None:
    given = codes("387e01807fff")
    assert same(E4M3FN.decode(given), [1.0, 448.0, 2.0**-9, -0.0, np.nan, np.nan])
    assert same(E4M3FNUZ.decode(given), [0.5, 224.0, 2.0**-10, np.nan, 240.0, -240.0])


def test_e5m2_has_infinities_and_its_fnuz_dialect_has_none() -> None:
    given = codes("3c7b01807cfc7d7f")
    assert same(E5M2.decode(given), [1.0, 57344.0, 2.0**-16, -0.0, np.inf, -np.inf, np.nan, np.nan])
    assert same(E5M2FNUZ.decode(given), [0.5, 28672.0, 2.0**-17, np.nan, 32768.0, -32768.0, 40960.0, 57344.0])


@pytest.mark.parametrize(
    ("dialect", "finite", "largest", "smallest"),
    [
        (E4M3FN, 254, 448, 2**-9),
        (E5M2, 248, 57344, 2**-16),
        (E4M3FNUZ, 255, 240, 2**-10),
        (E5M2FNUZ, 255, 57344, 2**-17),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_range_of_a_dialect(dialect: Fp8, finite: int, largest: float, smallest: float) -> None:
    values = dialect.table[np.isfinite(dialect.table)]
    assert (
        (values.size, values.max(), values.min()) == (finite, largest, -largest) == (finite, dialect.largest, -largest)
    )
    assert values[values > 0].min() == smallest
    assert np.all(np.diff(dialect.table[: dialect.top + 1]) > 0)


@EACH
def test_every_code_that_is_a_number_encodes_to_itself(dialect: Fp8) -> None:
    finite = ALL[np.isfinite(dialect.table)]
    assert np.array_equal(dialect.encode(dialect.decode(finite)), finite)
    assert np.isnan(dialect.decode(dialect.encode(np.array([np.nan, -np.nan])))).all()


@EACH
def test_encoding_takes_the_nearest_code_and_the_even_one_of_two(dialect: Fp8) -> None:
    ladder = dialect.table[: dialect.top + 1].astype(np.float64)
    middles = (ladder[1:] + ladder[:-1]) / 2  # exact in float32
    around = np.concatenate([np.nextafter(middles.astype(np.float32), np.float32(side)) for side in (0, np.inf)])
    given = np.concatenate([middles, around, np.random.default_rng(3).normal(0, dialect.largest / 4, 200)]).astype(
        np.float32
    )
    given = given[np.abs(given) <= dialect.largest]
    got = dialect.encode(given)
    wrong = [float(x) for x, code in zip(given, got, strict=True) if int(code) & 0x7F not in nearest(dialect, float(x))]
    assert not wrong
    signs = np.signbit(dialect.decode(dialect.encode(-middles.astype(np.float32))))
    assert signs[1:].all() and signs[0] != dialect.is_fnuz  # the first rounds to zero


@EACH
def test_beyond_the_largest(dialect: Fp8) -> None:
    step = dialect.largest - float(dialect.table[dialect.top - 1])
    below, above = np.float32(dialect.largest + step * 0.49), np.float32(dialect.largest + step * 0.51)
    given = np.array([below, above, -above, np.inf, -np.inf, 1e-45, -1e-45], np.float32)
    top = dialect.largest
    zero = 0.0 if dialect.is_fnuz else -0.0
    assert same(dialect.decode(dialect.encode(given)), [top, top, -top, top, -top, 0.0, zero])
    special = np.inf if dialect is E5M2 else np.nan
    assert same(
        dialect.decode(dialect.encode(given, "special")), [top, special, -special, special, -special, 0.0, zero]
    )


@pytest.mark.parametrize(("ocp", "fnuz"), [(E4M3FN, E4M3FNUZ), (E5M2, E5M2FNUZ)], ids=["e4m3", "e5m2"])
def test_fnuz_of_ocp_codes_is_half_the_value(ocp: Fp8, fnuz: Fp8) -> None:
    finite = ALL[np.isfinite(ocp.table)]
    assert np.array_equal(fnuz.decode(fnuz_of(finite, ocp)) * 2, ocp.decode(finite))
    assert fnuz_of(codes("80"), ocp)[0] == 0


@pytest.mark.parametrize(("dialect", "code"), [(E4M3FN, "7f"), (E4M3FN, "ff"), (E5M2, "7c"), (E5M2, "fe")])
def test_codes_that_are_not_finite_do_not_become_numbers(dialect: Fp8, code: str) -> None:
    with pytest.raises(ModelError, match=f"1 of 3 {dialect.name} codes are infinite or NaN"):
        fnuz_of(codes("01" + code + "38"), dialect)
