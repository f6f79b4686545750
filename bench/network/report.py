"""Measured figures beside promised ones: a table for users, JSON for programs."""
import json
from dataclasses import asdict, dataclass

from rounds import Spread

LEAST_ROUNDS = 20  # required for claims


@dataclass
class Figure:
    section: str
    hosts: int
    rate: object  # Mbit/s; None: unshaped
    name: str
    spread: Spread
    idle: float  # the idle fraction of processor time meanwhile
    at_least: float = None
    at_most: float = None
    rounds: int = 0

    @property
    def met(self):
        """None: nothing was promised."""
        if self.at_least is not None:
            return self.spread.median >= self.at_least
        return self.spread.median <= self.at_most if self.at_most is not None else None

    @property
    def bar(self):
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else "-"


@dataclass
class Times:
    """A contender's median seconds, for the curves."""
    section: str
    hosts: int
    rate: object
    contender: str
    seconds: float
    idle: float


def rate_text(rate):
    return "unshaped" if rate is None else f"{rate:g}"


def print_table(figures):
    head = ("section", "hosts", "Mbit/s", "figure", "median", "95 % bounds", "bar", "idle", "")
    rows = [head]
    for figure in figures:
        spread = figure.spread
        verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
        rows.append((figure.section, str(figure.hosts), rate_text(figure.rate), figure.name, f"{spread.median:.3f}",
                     f"{spread.low:.3f} to {spread.high:.3f}", figure.bar, f"{100 * figure.idle:.0f} %", verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip())
    if any(figure.rounds < LEAST_ROUNDS for figure in figures):
        print(f"\nFewer than {LEAST_ROUNDS} rounds: enough to see that it works, not to claim anything.")


def as_json(figures, times):
    rows = [{**asdict(figure), "bar": figure.bar, "met": figure.met} for figure in figures]
    return json.dumps({"figures": rows, "times": [asdict(one) for one in times]}, indent=1)
