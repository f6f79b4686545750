"""``bfrun``, BlueFog's launcher: ``bfrun -np 4 python t.py`` is ``starling run -n 4 -- python t.py``."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import NoReturn, Optional, Sequence

_EXAMPLE = "example: bfrun -np 4 python train.py --lr 0.1"
_HERE_ONLY = "all ranks run on this machine and communicate through shared memory"
# Options of mpirun -> why they have no effect here, and what to use instead.
_WITHOUT_MEANING = {
    "--network-interface": f"{_HERE_ONLY}; leave it out, or use starling run --hosts a:4,b:4 --interface NAME",
    "--extra-mpi-flags": "there is no mpirun to give them to; ranks inherit this shell's variables, so write "
    "NAME=VALUE in front of the command instead of -x NAME=VALUE",
    "--ssh-port": f"{_HERE_ONLY}; leave it out, or use starling run --hosts a:4,b:4 --launcher 'ssh -p PORT'",
    "--use-infiniband": f"{_HERE_ONLY}; leave it out",
    "--prefix": "there is no mpirun to find; leave it out",
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parses and checks the options of bfrun; wrong ones end the program with status 2 and one line that says why."""
    parser = argparse.ArgumentParser(
        prog="bfrun",
        allow_abbrev=False,
        usage="bfrun -np N [-H localhost:N | -hostfile FILE] [--timeline-filename PREFIX] [--verbose] CMD",
        description="Starts a command as N ranks on this machine, with `starling run`.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("-v", "--version", action="store_true", help="print Starling's version")
    add_places(parser)
    parser.add_argument(
        "--timeline-filename", metavar="PREFIX", help="every rank writes its timeline to PREFIX<rank>.json"
    )
    parser.add_argument("--verbose", action="store_true", help="print the command that is run")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    options = parser.parse_args(words)
    if options.version:
        return options
    check_places(parser, options, _EXAMPLE)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error(f"no command to run; {_EXAMPLE}")
    return options


def add_places(parser: argparse.ArgumentParser) -> None:
    """Adds the options that BlueFog's launchers share: the number of ranks, and their hosts."""
    parser.add_argument("-np", "--num-proc", dest="np", type=int, metavar="N", help="number of ranks")
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts", metavar="HOST:SLOTS", help="may only name this machine")
    hosts.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines 'host slots=N', read like -H")
    for name in ("--network-interface", "--extra-mpi-flags", "--prefix"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("-p", "--ssh-port", help=argparse.SUPPRESS)
    parser.add_argument("--use-infiniband", action="store_true", default=None, help=argparse.SUPPRESS)


def check_places(parser: argparse.ArgumentParser, options: argparse.Namespace, example: str) -> None:
    """Ends the program if the options of add_places are not possible."""
    if options.np is None or options.np < 1:
        parser.error(f"-np must be the number of ranks, at least 1, not {options.np}; {example}")
    for name, advice in _WITHOUT_MEANING.items():
        if getattr(options, name.strip("-").replace("-", "_")) is not None:
            parser.error(f"{name} does nothing here: {advice}")
    if options.hosts is not None:
        _check_hosts(parser, [entry.strip() for entry in options.hosts.split(",")], options.np)
    if options.hostfile is not None:
        _check_hosts(parser, _read_hostfile(parser, options.hostfile), options.np)


def starling_words(options: argparse.Namespace) -> list[str]:
    """The arguments of the command ``starling`` that do what these options ask for."""
    return ["run", "-n", str(options.np), "--", *options.command]


def main(words: Optional[Sequence[str]] = None) -> None:
    """The console script ``bfrun``: executes ``starling run``."""
    import starling

    from .tool import own_python_first

    options = parse(sys.argv[1:] if words is None else words)
    if options.version:
        print(starling.__version__)
        return
    if options.timeline_filename:
        os.environ["BLUEFOG_TIMELINE"] = options.timeline_filename
    command = ["starling", *starling_words(options)]
    if options.verbose:
        print(shlex.join(command), file=sys.stderr, flush=True)
    own_python_first()
    os.execv(starling.tool_path(), command)


def _read_hostfile(parser: argparse.ArgumentParser, file: str) -> list[str]:
    try:
        lines = [line.split("#")[0].split() for line in Path(file).read_text().splitlines()]
    except OSError as error:
        parser.error(f"-hostfile {file} cannot be read: {error.strerror}")
    return [":".join([line[0], *(word[len("slots=") :] for word in line[1:] if word.startswith("slots="))])
            for line in lines if line]


def _check_hosts(parser: argparse.ArgumentParser, entries: list[str], ranks: int) -> None:
    """Each entry is HOST:SLOTS, or HOST for all ranks."""
    slots = 0
    for entry in entries:
        host, _, number = entry.partition(":")
        if not host or (number and not number.isdecimal()) or entry.endswith(":"):
            parser.error(f"'{entry}' is not a host; write HOST:SLOTS, as in: -H localhost:{ranks}")
        if not _is_this_machine(host):
            _refuse(parser, host, ranks)
        slots += int(number) if number else ranks
    if slots < ranks:
        parser.error(f"{slots} slots are too few for {ranks} ranks; write -H localhost:{ranks}, or no hosts")


def _refuse(parser: argparse.ArgumentParser, host: str, ranks: int) -> NoReturn:
    parser.error(
        f"host {host} is not this machine ({socket.gethostname()}): {_HERE_ONLY}. "
        f"Leave -H out, or start ranks on several hosts with: starling run --hosts {host}:{ranks} COMMAND"
    )


def _is_this_machine(host: str) -> bool:
    name = socket.gethostname()
    if host in {"localhost", "127.0.0.1", name, name.split(".")[0]}:
        return True
    return host == socket.getfqdn()  # last, because it queries the name service


if __name__ == "__main__":
    main()
