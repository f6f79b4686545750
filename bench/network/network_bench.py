"""Operations and training between hosts on a slow network: `./run network-bench`. docs/network-bench.md explains it."""
import argparse
import sys
from pathlib import Path

from arena import ENGINES
from curves import page
from hosts import LARGEST, Hosts, Unavailable
from job import Failed
from operations import loopback, operations
from report import as_json, print_table, rate_text
from resilience import kill, stragglers
from training import BYTES, training

EVERYWHERE, ONCE, ONE_HOST = range(3)
# name: (what it does, whether for all --hosts and --rates, for the first of them, or on one host)
SECTIONS = {
    "loopback": (loopback, ONE_HOST),
    "operations": (operations, EVERYWHERE),
    "training": (training, EVERYWHERE),
    "stragglers": (stragglers, ONCE),
    "kill": (kill, ONCE),
}


def counts(text):
    values = [int(word) for word in text.split(",")]
    if not all(2 <= value <= LARGEST for value in values):
        raise argparse.ArgumentTypeError(f"'{text}': there can be 2 to {LARGEST} hosts")
    return values


def rates(text):
    return [None if word == "unshaped" else float(word) for word in text.split(",")]


def messages(text):
    words = text.split(",")
    if unknown := [word for word in words if word not in BYTES]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}': messages are {', '.join(BYTES)}")
    return words


def engines(text):
    words = text.split(",")
    if unknown := [word for word in words if word not in ENGINES]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}': engines are {', '.join(ENGINES)}")
    return words


def arguments():
    parser = argparse.ArgumentParser(
        prog="./run network-bench", description="Operations and training between hosts that are network namespaces of this "
        "machine, with links as slow as asked. Needs root.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all unless given")
    parser.add_argument("--hosts", type=counts, default=[4, 8], help="how many, such as 4,8")
    parser.add_argument("--rates", type=rates, default=[1000.0, 100.0],
                        help="of the links in Mbit/s, such as 1000,100,unshaped")
    parser.add_argument("--rounds", type=int, default=21,
                        help="in which the contenders take turns; at least 20 to claim anything")
    parser.add_argument("--seconds", type=float, default=1.5, help="of one turn, or one piece of work if that takes longer")
    parser.add_argument("--blocks", type=lambda text: [float(word) for word in text.split(",")], default=[10.0, 25.0],
                        help="of operations, in millions of floats")
    parser.add_argument("--messages", type=messages, default=list(BYTES),
                        help="that our training sends: " + ",".join(BYTES))
    parser.add_argument("--engines", type=engines, default=list(ENGINES),
                        help="that our ranks talk through, where a section has several: " + ",".join(ENGINES))
    parser.add_argument("--buckets", type=lambda text: [int(word) for word in text.split(",")], default=[1, 4, 25, 100],
                        help="of DDP, in megabytes: those of which the fastest competes")
    parser.add_argument("--by-hand", action="store_true",
                        help="programs on gloo or MPI by hand in our place: what the network allows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures and times")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with the times over bandwidth")
    given = parser.parse_args()
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"no section '{unknown[0]}'; there are {', '.join(SECTIONS)}")
    return given


def places(kind, given):
    """(hosts, rate) of all networks that a section runs on."""
    if kind == ONE_HOST:
        return [(1, None)]
    all_of = [(hosts, rate) for hosts in given.hosts for rate in given.rates]
    return all_of if kind == EVERYWHERE else all_of[:1]


def measure(given):
    """(figures, times, notes, failures); a failure does not end the other measurements."""
    everything, failures = ([], [], []), []
    for name in given.sections or SECTIONS:
        section, kind = SECTIONS[name]
        for count, rate in places(kind, given):
            try:
                with Hosts(count, rate) as hosts:
                    found = section(hosts, given)
            except Failed as error:
                failures.append(f"{name}, {count} hosts, {rate_text(rate)}: {error}")
                continue
            if given.by_hand:
                for one in [*found[0], *found[1]]:
                    one.section += ", by hand"
            for all_of, new in zip(everything, found):
                all_of += new
    return *everything, failures


def main():
    given = arguments()
    try:
        figures, times, notes, failures = measure(given)
    except Unavailable as error:
        print(f"network-bench: {error}", file=sys.stderr)
        return 2
    if figures:
        print_table(figures)
    for note in sorted(set(notes)):
        print(f"Left out: {note}")
    for failure in failures:
        print(f"FAILED: {failure}")
    if given.json:
        given.json.write_text(as_json(figures, times) + "\n")
    if given.html:
        given.html.write_text(page(times))
    return 1 if failures or any(figure.met is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
