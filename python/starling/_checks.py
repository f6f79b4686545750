"""Argument checks shared by several modules."""

from __future__ import annotations

import operator
import warnings
from typing import Any


def warn_renamed(old: str, name: str, stacklevel: int = 3) -> None:
    """Warns at the caller's line that `old` is now called `name`; Python shows it once per line of code."""
    warnings.warn(f"{old} is now called {name}; the old name will be removed", FutureWarning, stacklevel=stacklevel)


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int (numpy's integers too), or TypeError / ValueError that says what `name` may be."""
    valid = "a whole number " + (f"of at least {least}" if most is None else f"from {least} to {most}")
    if isinstance(value, bool):  # an int to Python, a mistake to us
        raise TypeError(f"{name} must be {valid}, not the bool {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {valid}, not the {type(value).__name__} {value!r}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {valid}, not {number}")
    return number
