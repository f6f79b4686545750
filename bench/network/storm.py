"""Runs of a small program between hosts that are network namespaces, with seeded faults: ./run storm --help.

Every run is a function of its seed: the fabric, the number of ranks and what happens when. Afterwards four things are checked:
all ranks have ended in a bounded time; each has finished, was killed by us, or ended with an error that names ranks; all that
finished did so in one view, which has them all; and their results are the same. Faults that the job has to survive as a whole
are held to that.
"""
import argparse
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hosts import INTERFACE, Hosts, Unavailable

BIN = Path(os.environ.get("STARLING_BIN", Path(__file__).resolve().parents[2] / "build" / "release" / "bin"))
PEER_TIMEOUT = 2.0  # seconds
TIMEOUT = 8.0  # of the flock
LIMIT = 60.0  # no run may take longer after its ranks have joined
NOBODY = "02:00:00:00:00:99"  # no host has this address: frames for it are lost
LAUNCHERS = ("STARLING_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK", "GLOO_")


class Links:
    """Controls the loss of frames from one host to another."""

    def __init__(self, hosts):
        self.hosts, self._dropped = hosts, set()

    def _neighbor(self, host, words):
        subprocess.run(["ip", "-n", self.hosts.names[host], "neigh", *words, "dev", INTERFACE], check=False, capture_output=True)

    def drop(self, sender, receiver):
        address = self.hosts.bridge_address if receiver is None else self.hosts.address(receiver)
        self._neighbor(sender, ["replace", address, "lladdr", NOBODY, "nud", "permanent"])
        self._dropped.add((sender, address))

    def cut(self, one, other):
        self.drop(one, other)
        self.drop(other, one)

    def mend(self):
        for sender, address in self._dropped:
            self._neighbor(sender, ["delete", address])
        self._dropped.clear()


class Job:
    def __init__(self, hosts, fabric, ranks, steps, elements, on_peer_failure):
        token = secrets.token_hex(16)
        self.store = hosts.start(None, [str(BIN / "starling"), "host-store", hosts.bridge_address], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        self.store.stdin.write(token + "\n")
        self.store.stdin.flush()
        port = self.store.stdout.readline().split()[1]
        each = ranks // hosts.count
        self.host_of = [rank // each for rank in range(ranks)]
        clean = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
        self.outputs = [tempfile.TemporaryFile("w+") for _ in range(ranks)]
        self.processes = []
        for rank, host in enumerate(self.host_of):
            variables = {**clean, "OMP_NUM_THREADS": "1", "STARLING_RANK": str(rank), "STARLING_SIZE": str(ranks),
                         "STARLING_JOB": token, "STARLING_FABRIC": fabric, "STARLING_INTERFACE": INTERFACE,
                         "STARLING_STORE": f"{hosts.bridge_address}:{port}", "STARLING_TIMEOUT": str(TIMEOUT),
                         "STARLING_PEER_TIMEOUT": str(PEER_TIMEOUT)}
            self.processes.append(hosts.start(host, [str(BIN / "starling_storm_rank"), str(steps), str(elements), on_peer_failure],
                                              env=variables, stdout=self.outputs[rank], stderr=subprocess.STDOUT))

    def text(self, rank):
        self.outputs[rank].seek(0)
        return self.outputs[rank].read()

    def wait_until_joined(self, limit):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if all("joined" in self.text(rank) for rank in range(len(self.processes))):
                return True
            time.sleep(0.02)
        return False

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.store.stdin.close()
        self.store.kill()
        self.store.wait()
        self.store.stdout.close()


class Storm:
    """The faults of one run, and the ranks that must survive them; None if that depends on timing."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.fabric = draw.choice(["c10d", "hybrid"])
        self.hosts = draw.choice([2, 3, 4]) if self.fabric == "c10d" else 2
        self.ranks = self.hosts * (1 if self.fabric == "c10d" else 2)
        self.elements = draw.choice([16, 16, 100_000])
        self.on_peer_failure = "raise" if draw.random() < 0.15 else "reweight"
        kinds = ["calm", "kill", "kill", "kill two", "kill most", "short stop", "stop", "long stop", "cut", "one way",
                 "isolate", "halves", "blip", "kill and cut", "kill and stop", "cut two"]
        self.kind = draw.choice(kinds)
        self.at = draw.uniform(0.0, 1.5)
        self.draw = draw
        self.killed = set()
        self.stopped = set()

    def host_pair(self):
        return self.draw.sample(range(self.hosts), 2)

    def strike(self, job, links):
        everybody = set(range(self.ranks))
        kind, draw = self.kind, self.draw
        must = everybody
        if kind in ("kill", "kill and cut", "kill and stop"):
            must = everybody - self.kill(job, 1)
        if kind == "kill two":
            must = everybody - self.kill(job, min(2, self.ranks - 1))
        if kind == "kill most":
            must = everybody - self.kill(job, self.ranks - 1)
        if kind in ("short stop", "stop", "long stop", "kill and stop"):
            self.stop(job, {"short stop": draw.uniform(0.1, 1.5), "kill and stop": draw.uniform(0.1, 1.5),
                            "stop": draw.uniform(2.5, 5.0), "long stop": TIMEOUT + 4}[kind])
            must = None if kind == "long stop" else must
        if kind in ("cut", "kill and cut", "cut two"):
            for _ in range(2 if kind == "cut two" else 1):
                links.cut(*self.host_pair())
            # Two broken links leave four hosts connected.
            must = must if self.hosts > {"cut": 2, "cut two": 3}.get(kind, self.hosts) else None
        if kind == "one way":
            links.drop(*self.host_pair())
            must = must if self.hosts > 2 else None
        if kind == "blip":
            links.cut(*self.host_pair())
            time.sleep(draw.uniform(0.1, 0.6))
            links.mend()
        if kind in ("isolate", "halves"):
            must = self.divide(job, links)
        if self.on_peer_failure == "raise" and kind not in ("calm", "short stop", "stop", "blip", "cut", "one way"):
            must = None
        return must

    def kill(self, job, count):
        victims = set(self.draw.sample(range(self.ranks), count))
        for rank in victims:
            job.processes[rank].kill()
        self.killed |= victims
        return victims

    def stop(self, job, seconds):
        victim = self.draw.choice(sorted(set(range(self.ranks)) - self.killed))
        process = job.processes[victim]
        process.send_signal(signal.SIGSTOP)
        self.stopped.add(victim)
        timer = threading.Timer(seconds, lambda: process.poll() is None and process.send_signal(signal.SIGCONT))
        timer.daemon = True
        timer.start()

    def divide(self, job, links):
        size = 1 if self.kind == "isolate" else self.hosts // 2
        apart = set(self.draw.sample(range(self.hosts), size))
        for one in apart:
            for other in set(range(self.hosts)) - apart:
                links.cut(one, other)
            if self.draw.random() < 0.5 and 2 * size < self.hosts:
                links.drop(one, None)
        side = {rank for rank, host in enumerate(job.host_of) if host in apart}
        others = set(range(self.ranks)) - side
        if len(side) == len(others):
            return side if 0 in side else others
        return max(side, others, key=len)


FINISHED = re.compile(r"^finished view ([\d,]+) contributors ([\d,]+) sum (.*)$", re.MULTILINE)
ERROR = re.compile(r"^error (.*)$", re.MULTILINE)


def problems(storm, job, must):
    """The errors in how a run ended; empty if there are none."""
    found, finished = [], {}
    for rank, process in enumerate(job.processes):
        text = job.text(rank)
        done, error = FINISHED.search(text), ERROR.search(text)
        if process.returncode is None:
            found.append(f"rank {rank} hangs: {text.strip()[-300:]!r}")
        elif done and process.returncode == 0:
            finished[rank] = done.groups()
        elif rank in storm.killed:
            continue
        elif not error or not re.search(r"ranks? \d+", error.group(1)):
            found.append(f"rank {rank} ended with {process.returncode} and no error that names a rank: {text.strip()[-300:]!r}")
        elif must is not None and rank in must:
            found.append(f"rank {rank} should have finished: {error.group(1)}")
    for rank, (view, contributors, values) in finished.items():
        if str(rank) not in view.split(","):
            found.append(f"rank {rank} finished in view {view}, which is not its own")
        if str(rank) not in contributors.split(","):
            found.append(f"rank {rank} finished without itself: {contributors}")
    if len({ends[1:] for ends in finished.values()}) > 1:
        found.append(f"the finishers have different results: {finished}")
    if must is not None and not must <= set(finished) and not found:
        found.append(f"ranks {sorted(must - set(finished))} did not finish")
    return found


def run(hosts, seed, verbose=False):
    storm, links = Storm(seed), Links(hosts)
    began = time.monotonic()
    job = Job(hosts, storm.fabric, storm.ranks, 600, storm.elements, storm.on_peer_failure)
    try:
        if not job.wait_until_joined(LIMIT):
            wrong = [f"the ranks have not joined: {[job.text(rank)[-200:] for rank in range(storm.ranks)]}"]
        else:
            time.sleep(storm.at)
            must = storm.strike(job, links)
            end = time.monotonic() + LIMIT
            while time.monotonic() < end and any(process.poll() is None for process in job.processes):
                time.sleep(0.02)
            wrong = problems(storm, job, must)
        if verbose:
            for rank in range(storm.ranks):
                print(f"--- rank {rank}, exit {job.processes[rank].returncode}\n{job.text(rank)}", flush=True)
        finished = sum(FINISHED.search(job.text(rank)) is not None for rank in range(storm.ranks))
    finally:
        links.mend()
        job.end()
    text = (f"seed {seed}: {storm.fabric}, {storm.hosts} hosts, {storm.ranks} ranks, {storm.on_peer_failure}, {storm.kind}: "
            f"{finished} finished, {time.monotonic() - began:.1f} s")
    return text, wrong


def worker(seeds, verbose, report):
    """Runs on its own networks until there are no more seeds."""
    networks = {}
    try:
        while True:
            try:
                seed = seeds.pop(0)
            except IndexError:
                return
            count = Storm(seed).hosts
            if count not in networks:
                networks[count] = Hosts(count)
                networks[count].__enter__()
            report(*run(networks[count], seed, verbose))
    finally:
        for network in networks.values():
            network.__exit__(None, None, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="how many (300)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first run; the others follow (0)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--verbose", action="store_true", help="print the ranks' output")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.runs))
    lock, failures, done = threading.Lock(), [], [0]

    def report(text, wrong):
        with lock:
            done[0] += 1
            print(f"{text}{'' if not wrong else ': WRONG'}", flush=True)
            for line in wrong:
                print(f"    {line}", flush=True)
            if wrong:
                failures.append(text)

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for future in [pool.submit(worker, seeds, options.verbose, report) for _ in range(options.jobs)]:
                future.result()
    except Unavailable as error:
        sys.exit(f"storm: {error}")
    print(f"{done[0]} runs, {len(failures)} wrong" + "".join(f"\n  {text}" for text in failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
