"""Numbers as people read them: a value and its uncertainty with the same decimals."""

import math


def plus_minus(mean: float, half: float, sign: str = "") -> str:
    """The value to the place where its uncertainty has two digits, or three where the value would
    lose its own; without one where that is not known. `sign="+"` shows it of gains too.

    >>> plus_minus(200.9, 156.3), plus_minus(0.01234, 0.0021), plus_minus(7866.2, 3993.1)
    ('201 ± 156', '0.0123 ± 0.0021', '7,866 ± 3,993')
    >>> plus_minus(1.31, 14.12), plus_minus(-0.0002, 0.00468), plus_minus(0.0, 0.3)
    ('1.3 ± 14.1', '-0.00020 ± 0.00468', '0.00 ± 0.30')
    >>> plus_minus(1.25, 0.5, "+"), plus_minus(3.14159, math.inf), plus_minus(3.1e-7, 2.2e-8)
    ('+1.25 ± 0.50', '3.14', '(3.10 ± 0.22)e-07')
    >>> plus_minus(2.7443e90, 1e91), plus_minus(12345678.0, math.inf)
    ('(0.27 ± 1.00)e+91', '12,345,678')
    >>> plus_minus(math.inf, 1.0), plus_minus(math.nan, 1.0)
    ('diverged', 'not run')
    """
    if math.isnan(mean):
        return "not run"
    if math.isinf(mean):
        return "diverged"
    known = math.isfinite(half)
    largest = max(abs(mean), half) if known else abs(mean)
    if 0 < largest < 1e-4 or largest >= 1e9:
        power = math.floor(math.log10(largest))
        scaled = plus_minus(mean / 10**power, half / 10**power, sign)
        return f"({scaled})e{power:+03d}" if known else f"{scaled}e{power:+03d}"
    # Three digits of a value without uncertainty; two of an uncertainty, but no noise of rounding.
    decimals = _decimals(mean, 3)
    # Below that is rounding, not noise.
    if known and half > 1e-9 * abs(mean):
        decimals = max(_decimals(half, 2), min(_decimals(mean, 2), _decimals(half, 3)))
    decimals = min(decimals, _decimals(mean, 6)) if mean else decimals
    said = f"{mean:{sign},.{decimals}f}"
    return f"{said} ± {half:,.{decimals}f}" if known else said


def readable(value: float, sign: str = "") -> str:
    """Three digits, without powers of ten where it can be read without."""
    return plus_minus(value, math.inf, sign)


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
