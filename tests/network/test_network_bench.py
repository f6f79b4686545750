"""Tests how ./run network-bench evaluates its measurements, and a short run of it."""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "network"
sys.path.insert(0, str(FOLDER))

import arena  # noqa: E402
import curves  # noqa: E402
import hosts as network  # noqa: E402
import job as jobs  # noqa: E402
import network_bench  # noqa: E402
import rounds  # noqa: E402
import training  # noqa: E402
from report import Figure, Times  # noqa: E402


class FakeJob:
    """Answers with times from a table and records the lines it gets."""

    def __init__(self, seconds):
        self._seconds, self.told = seconds, []

    def seconds(self, line):
        self.told.append(line)
        return self._seconds * int(line.split()[1])

    def ask(self, line):
        raise jobs.Refused("never heard of it")


class FakeHosts:
    """A link whose byte counter grows by `step` with every query."""

    def __init__(self, step):
        self._step, self._bytes = step, 0

    def bytes_sent(self, _host):
        self._bytes += self._step
        return self._bytes


def contender(seconds, **more):
    return rounds.Contender("somebody", FakeJob(seconds), lambda count: f"steps {count}", **more)


def test_contenders_take_turns_of_about_the_same_length():
    quick, slow = contender(0.01), contender(0.2, multiple=3)
    rounds.interleave([quick, slow], 5, 0.5, FakeHosts(0))
    assert (quick.count, slow.count) == (50, 3)
    assert quick.seconds == pytest.approx([0.01] * 5) and slow.seconds == pytest.approx([0.2] * 5)
    assert rounds.ratio(slow, quick).median == pytest.approx(20)


def test_bypassing_the_network_is_an_error():
    rounds.interleave([contender(0.1, least_bytes=1000)], 1, 0.1, FakeHosts(1000))
    with pytest.raises(jobs.Failed, match="does not use the network"):
        rounds.interleave([contender(0.1, least_bytes=1000)], 1, 0.1, FakeHosts(999))


def test_the_fastest_is_chosen_and_starts_afresh():
    all_of = [contender(0.3), contender(0.1), contender(0.2)]
    best = rounds.fastest(all_of, 0.5, FakeHosts(0))
    assert best is all_of[1] and best.seconds == []


def test_contenders_without_the_operation_are_left_out():
    able, notes = rounds.offered([contender(0.1)])
    assert able == [] and "never heard of it" in notes[0]


def test_bounds_are_those_of_the_sign_test():
    spread = rounds.Spread.of(range(21, 0, -1))
    assert (spread.median, spread.low, spread.high) == (11, 7, 15)
    assert rounds.Spread.of([3]).low == 3


def test_bars_say_which_side_is_good():
    def figure(median, **bar):
        return Figure("s", 4, None, "f", rounds.Spread(median, 0, 9), 0.5, **bar)

    assert figure(1.5, at_least=1.45).met and not figure(1.4, at_least=1.45).met
    assert figure(1.0, at_most=1.1).met and not figure(1.2, at_most=1.1).met
    assert figure(1.0).met is None


def test_bars_are_the_promised_ones():
    assert training.bar_of(("float32", "float32"), 8, 1000.0) == 1.5
    assert training.bar_of(("float32", "float32"), 4, None) == 1.0
    assert training.bar_of(("int8", "float16"), 4, 100.0) == 2.5
    assert training.bar_of(("float32", "float32"), 2, 100.0) is None


def test_the_page_has_a_curve_and_a_table_for_every_contender():
    times = [Times("training", 4, rate, who, 30 / rate, 0.5) for rate in (100.0, 1000.0) for who in ("us", "<them>")]
    page = curves.page([*times, Times("training", 8, None, "us", 0.01, 0.5)])
    assert page.count("<polyline") == 2 and page.count("<circle") == 4
    assert "&lt;them&gt;" in page and "<them>" not in page
    assert "8 hosts" in page and "unshaped" in page


def command(*words):
    process = subprocess.Popen([sys.executable, str(FOLDER / "network_bench.py"), *words], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    process.out, process.err = process.communicate(timeout=200)
    return process


def test_mistakes_are_errors():
    assert "no section 'operation'" in command("operation").err
    assert "2 to 8 hosts" in command("--hosts", "9").err
    assert "engines are c10d, mpi" in command("--engines", "udp").err


def test_it_needs_root_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["network-bench", "operations"])
    assert network_bench.main() == 2
    assert "need root" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_short_run(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "figures.json"
    done = command("operations", "--by-hand", "--engines", "c10d", "--hosts", "2", "--rates", "200", "--rounds", "2", "--blocks", "0.25",
                   "--seconds", "0.1", "--json", str(file), "--html", str(tmp_path / "page.html"))
    if done.returncode == 2:
        pytest.skip(done.err.strip())
    assert "share of the link" in done.out and "FAILED" not in done.out, done.out + done.err
    found = json.loads(file.read_text())
    share = next(figure for figure in found["figures"] if "share" in figure["name"])
    # The share can exceed 1: a full bucket lets the first bytes through at once.
    assert share["rate"] == 200 and 0 < share["spread"]["median"] < 1.5, done.out
    assert {one["contender"] for one in found["times"]} == {f"{who} {what}" for who in ("by hand", "gloo")
                                                            for what in ("one-peer", "all-reduce")}
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert not [name for name in os.listdir(network.NAMESPACES) if name.startswith(f"starling-{done.pid}-")]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_short_run_over_mpi(tmp_path):
    if reason := arena.mpi_missing() or (not arena.TOOL.exists() and "the Trainer is not built here"):
        pytest.skip(reason)
    file = tmp_path / "figures.json"
    done = command("operations", "--engines", "mpi", "--hosts", "2", "--rates", "200", "--rounds", "1", "--blocks", "0.3",
                   "--seconds", "0.1", "--json", str(file))
    if done.returncode == 2:
        pytest.skip(done.err.strip())
    assert "over MPI: MPI_Allreduce / one-peer" in done.out and "FAILED" not in done.out, done.out + done.err
    assert {one["contender"] for one in json.loads(file.read_text())["times"]} == {
        "starling over MPI native-all-reduce",
        *(f"{who} {what}" for who in ("starling over MPI", "MPI") for what in ("one-peer", "all-reduce"))}


def test_engines_that_are_missing_are_left_out(monkeypatch):
    monkeypatch.setattr(arena.ENGINES["mpi"], "missing", lambda: "no mpirun here")
    found, notes = arena.engines(argparse.Namespace(engines=["c10d", "mpi"]))
    assert found == [arena.ENGINES["c10d"]] and notes == ["the engine mpi: no mpirun here"]
