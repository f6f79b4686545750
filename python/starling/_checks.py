"""Argument checks shared by several modules."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from typing import Any, Iterable


def warn_renamed(old: str, name: str, stacklevel: int = 3) -> None:
    """Warns at the caller's line that `old` is now called `name`; Python shows it once per line of code."""
    warnings.warn(f"{old} is now called {name}; the old name will be removed", FutureWarning, stacklevel=stacklevel)


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int (numpy's integers too); otherwise TypeError or ValueError with the valid range of `name`."""
    valid = "a whole number " + (f"of at least {least}" if most is None else f"from {least} to {most}")
    if isinstance(value, bool):  # an int for Python, but an error here
        raise TypeError(f"{name} must be {valid}, not the bool {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {valid}, not the {type(value).__name__} {value!r}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {valid}, not {number}")
    return number


def number_above_0(name: str, value: Any) -> float:
    """`value` as a float; otherwise TypeError or ValueError with the valid range of `name`."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number above 0, not the {type(value).__name__} {value!r}")
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be a number above 0, not {number:g}")
    return number


def set_setting(settings: Any, name: str, value: Any) -> None:
    """Sets an attribute of the library's settings; raises a clear TypeError if the type is wrong."""
    try:
        setattr(settings, name, value)
    except TypeError:
        usual = getattr(settings, name)
        valid = {str: "a text", float: "a number", int: "a whole number of at least 0"}.get(type(usual), f"a {type(usual).__name__}")
        raise TypeError(f"{name} must be {valid}, not the {type(value).__name__} {value!r}") from None


def no_attribute(owner: str, name: str, valid: Iterable[str]) -> AttributeError:
    """The error for setting an attribute without effect."""
    settable = sorted(valid)
    close = difflib.get_close_matches(name, settable, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return AttributeError(f"{owner} has no attribute '{name}' to set{hint}; valid are {', '.join(settable)}")
