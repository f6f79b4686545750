"""Contenders take turns; claims are about the rounds' ratios."""
import math
import statistics
import sys
from dataclasses import dataclass, field

from hosts import Idle
from job import Failed, Refused


@dataclass
class Contender:
    name: str
    job: object
    line: object  # count -> the command for the ranks: one line for all, or a list with one line each
    least_bytes: int = 0  # that each host must send per piece of work; otherwise it has bypassed the network
    multiple: int = 1  # the number of pieces of work is a multiple of this
    count: int = 1
    seconds: list = field(default_factory=list)  # per piece of work, by round
    idle: list = field(default_factory=list)

    def take_turn(self):
        with Idle() as idle:
            seconds = self.job.seconds(self.line(self.count)) / self.count
        return seconds, idle.share

    def middle(self):
        return statistics.median(self.seconds)


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def warm_up(contender, seconds, hosts):
    """Also determines the repetitions for `seconds` of work, and checks that the network carries the traffic."""
    say(f"warming up {contender.name}")
    contender.count = contender.multiple
    contender.take_turn()
    before = hosts.bytes_sent(0)
    first, _ = contender.take_turn()
    sent = (hosts.bytes_sent(0) - before) / contender.count
    if sent < contender.least_bytes:
        raise Failed(f"{contender.name}: host 0 sent {sent / 1e6:.2f} MB instead of {contender.least_bytes / 1e6:.2f}; "
                     "it does not use the network")
    contender.count = contender.multiple * max(1, round(seconds / first / contender.multiple))


def interleave(contenders, rounds, seconds, hosts):
    """Every contender has a turn of about `seconds` in every round; the first contender changes."""
    for contender in contenders:
        warm_up(contender, seconds, hosts)
    for number in range(rounds):
        for turn in range(len(contenders)):
            contender = contenders[(number + turn) % len(contenders)]
            say(f"round {number + 1} of {rounds}: {contender.name}")
            took, idle = contender.take_turn()
            contender.seconds.append(took)
            contender.idle.append(idle)
    say("")


def offered(contenders):
    """The contenders that support their commands, and why the others do not."""
    able, notes = [], []
    for contender in contenders:
        try:
            contender.job.ask(contender.line(contender.multiple))
            able.append(contender)
        except Refused as refusal:
            notes.append(f"{contender.name}: {refusal}")
    return able, notes


def fastest(contenders, seconds, hosts, rounds=3):
    """The one with the best median of a few rounds, such as the best bucket size."""
    if len(contenders) == 1:
        return contenders[0]
    interleave(contenders, rounds, seconds, hosts)
    best = min(contenders, key=Contender.middle)
    best.seconds, best.idle = [], []
    return best


@dataclass
class Spread:
    """A median with its 95 % bounds: the order statistics of the sign test."""
    median: float
    low: float
    high: float

    @staticmethod
    def of(values):
        ordered = sorted(values)
        below = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
        return Spread(statistics.median(ordered), ordered[below], ordered[-1 - below])


def ratio(over, under):
    return Spread.of([a / b for a, b in zip(over.seconds, under.seconds)])
