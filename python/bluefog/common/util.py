"""Temporary environment variables."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def env(**variables: object) -> Iterator[None]:
    """Sets environment variables and, afterwards, restores what was there; None removes one.

    >>> with env(BLUEFOG_NODES_PER_MACHINE="2", BLUEFOG_TIMELINE=None):
    ...     bf.init()
    """
    before = {name: os.environ.get(name) for name in variables}
    try:
        _apply(variables)
        yield
    finally:
        _apply(before)


def _apply(variables: dict[str, object]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)
