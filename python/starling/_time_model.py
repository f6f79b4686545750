"""Modelled machines from a dict or a TOML file, with the keys of ``starling simulate train --time``."""

from __future__ import annotations

import difflib
import os
from typing import Any, Dict, Iterable, List, Sequence

from . import _core

_SECONDS_PER_BYTE_AT_GBIT = 8e-9


def make_time_model(given: Any, n: int, seed: int) -> _core.TimeModel:
    """``given`` is None (1 ms a gradient, 50 us and 10 Gbit/s a link), a dict, or the path of a TOML file."""
    settings = _read(given) if isinstance(given, (str, os.PathLike)) else dict(given or {})
    model = _core.TimeModel()
    model.seed = seed
    _check_keys(settings, ("compute", "compute_of", "latency", "bandwidth", "hosts", "link", "straggler"), "")
    compute = settings.get("compute", model.compute)
    if isinstance(compute, Iterable):
        model.compute_of = [_number(one, "compute") for one in compute]
        if len(model.compute_of) != n:
            raise _core.InvalidArgument(f"compute has {len(model.compute_of)} numbers; valid is one, or a list of {n}")
    else:
        model.compute = _number(compute, "compute")
    for rank, seconds in dict(settings.get("compute_of", {})).items():
        (rank,) = _ranks([int(rank)], n, "compute_of")
        own = model.compute_of + [model.compute] * (rank + 1 - len(model.compute_of))
        own[rank] = _number(seconds, f"compute_of.{rank}")
        model.compute_of = own
    link = _link(settings, 50e-6, 10, "")
    model.set_link(*link)
    hosts = dict(settings.get("hosts", {}))
    _check_keys(hosts, ("ranks_per_host", "latency", "bandwidth"), "hosts.")
    model.ranks_per_host = int(_number(hosts.get("ranks_per_host", 1), "hosts.ranks_per_host", least=1))
    model.set_inside(*_link(hosts, 1e-6, 100, "hosts."))
    for rule in settings.get("link", []):
        _check_keys(rule, ("from", "to", "latency", "bandwidth"), "link.")
        ends = [_ranks(rule.get(key, []), n, f"link.{key}") for key in ("from", "to")]
        model.add_rule(*ends, *_link(rule, link[0], _SECONDS_PER_BYTE_AT_GBIT / link[1], "link."))
    for one in settings.get("straggler", []):
        _add_straggler(model, one, n)
    return model


def _read(path: "str | os.PathLike[str]") -> Dict[str, Any]:
    import tomllib

    with open(path, "rb") as file:
        return tomllib.load(file)


def _add_straggler(model: _core.TimeModel, given: Dict[str, Any], n: int) -> None:
    _check_keys(given, ("nodes", "every", "probability", "factor", "extra"), "straggler.")
    factor, extra = given.get("factor", 1), given.get("extra", 0)
    if factor == 1 and extra == 0:
        raise _core.InvalidArgument("a straggler needs extra (seconds) or a factor")
    probability = _number(given.get("probability", 1), "straggler.probability")
    if probability > 1:
        raise _core.InvalidArgument(f"straggler.probability must be from 0 to 1, not {probability}")
    model.add_straggler(_ranks(given.get("nodes", []), n, "straggler.nodes"),
                        int(_number(given.get("every", 1), "straggler.every", least=1)), probability,
                        _number(factor, "straggler.factor"), _number(extra, "straggler.extra"))


def _link(given: Dict[str, Any], latency: float, gbit: float, where: str) -> "tuple[float, float]":
    bandwidth = _number(given.get("bandwidth", gbit), where + "bandwidth")
    if bandwidth == 0:
        raise _core.InvalidArgument(f"{where}bandwidth must be above 0 Gbit/s")
    return _number(given.get("latency", latency), where + "latency"), _SECONDS_PER_BYTE_AT_GBIT / bandwidth


def _number(value: Any, what: str, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < float("inf"):
        raise _core.InvalidArgument(f"{what} must be a number of at least {least}, not {value!r}")
    return float(value)


def _ranks(given: Sequence[int], n: int, what: str) -> List[int]:
    for rank in given:
        if not 0 <= rank < n:
            raise _core.InvalidArgument(f"{what}: nodes are numbered from 0 to {n - 1}, not {rank}")
    return sorted(set(given))


def _check_keys(given: Dict[str, Any], valid: Sequence[str], where: str) -> None:
    for key in given:
        if key not in valid:
            near = difflib.get_close_matches(key, valid, 1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise _core.InvalidArgument(f"unknown key {where}{key}{hint}; valid are {', '.join(valid)}")
