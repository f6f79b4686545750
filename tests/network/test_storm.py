"""A few of the seeded runs of ./run storm: one for each kind of fault on which the ranks must agree."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "network"))

import hosts as network  # noqa: E402
import storm  # noqa: E402

LEAST = 0  # seeds are searched from here


def seed_of(kind, fabric, count):
    """The first seed of such a run in which ranks continue after failures."""
    for seed in range(LEAST, LEAST + 5000):
        one = storm.Storm(seed)
        if (one.kind, one.fabric, one.hosts, one.on_peer_failure, one.elements) == (kind, fabric, count, "reweight", 16):
            return seed
    raise LookupError(f"no seed for {kind}")


@pytest.mark.parametrize("kind, fabric, count", [("kill", "c10d", 3), ("cut", "c10d", 3), ("halves", "hybrid", 2), ("stop", "c10d", 2)])
def test_faults_between_hosts(kind, fabric, count):
    try:
        with network.Hosts(count) as hosts:
            text, wrong = storm.run(hosts, seed_of(kind, fabric, count))
    except network.Unavailable as error:
        pytest.skip(str(error))
    assert not wrong, "\n".join([text, *wrong])


def test_a_seed_always_means_the_same_run():
    one, other = storm.Storm(17), storm.Storm(17)
    assert (one.kind, one.fabric, one.hosts, one.at) == (other.kind, other.fabric, other.hosts, other.at)
    assert one.draw.random() == other.draw.random()
