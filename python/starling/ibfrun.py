"""``ibfrun``, BlueFog's workers for notebooks: ``ibfrun start -np 4`` and, at the end, ``ibfrun stop``."""

from __future__ import annotations

import argparse
import sys
from typing import Optional, Sequence

from .bfrun import add_places, check_places

_EXAMPLE = "example: ibfrun start -np 4"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parses and checks the options of ibfrun; wrong ones end the program with status 2 and one line that says why."""
    parser = argparse.ArgumentParser(
        prog="ibfrun",
        allow_abbrev=False,
        description="Starts and stops workers in the background that notebooks map functions onto.",
        epilog="In the notebook: import starling; cluster = starling.Cluster(); help(cluster)",
    )
    parser.add_argument("-v", "--version", action="store_true", help="print Starling's version")
    actions = parser.add_subparsers(dest="action", metavar="start | stop")
    start = actions.add_parser("start", help="start the workers and return", allow_abbrev=False)
    stop = actions.add_parser("stop", help="end them", allow_abbrev=False)
    for action in (start, stop):
        action.add_argument("--name", "--ipython-profile", default="default", help="which one, of several")
    add_places(start)
    options = parser.parse_args(words)
    if options.action is None and not options.version:
        parser.error(f"say start or stop; {_EXAMPLE}")
    if options.action == "start":
        check_places(start, options, _EXAMPLE)
    return options


def main(words: Optional[Sequence[str]] = None) -> None:
    """The console script ``ibfrun``."""
    import starling
    from .cluster import Cluster

    options = parse(sys.argv[1:] if words is None else words)
    if options.version:
        print(starling.__version__)
        return
    try:
        {"start": _start, "stop": _stop}[options.action](Cluster, options)
    except starling.Error as error:
        sys.exit(f"ibfrun: {error}")


def _start(cluster_class: type, options: argparse.Namespace) -> None:
    with cluster_class.launch(options.np, options.name):
        pass  # closing leaves the workers running
    default = options.name == "default"
    found = "starling.Cluster()" if default else f"starling.Cluster.connect({options.name!r})"
    stop = "ibfrun stop" if default else f"ibfrun stop --name {options.name}"
    print(f"{options.np} workers are ready: {found} in a notebook; `{stop}` ends them")


def _stop(cluster_class: type, options: argparse.Namespace) -> None:
    ended = cluster_class.stop(options.name)
    print("the workers end now" if ended else f"no cluster named {options.name} was running")


if __name__ == "__main__":
    main()
