"""BlueFog's launcher for notebooks, with real workers."""

import shutil
import subprocess
import sys
import tempfile

import pytest

import starling
from starling import ibfrun


@pytest.fixture
def elsewhere(monkeypatch):
    """A separate folder for the cluster's socket, whose path must be short."""
    folder = tempfile.mkdtemp(prefix="ibf")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    yield
    starling.Cluster.stop()
    starling.Cluster.stop("other")
    shutil.rmtree(folder)


def run(*words):
    command = [sys.executable, "-m", "starling.ibfrun", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_start_use_and_stop(elsewhere):
    assert run("start", "-np", "2") == (
        0, "2 workers are ready: starling.Cluster() in a notebook; `ibfrun stop` ends them\n", "")
    with starling.Cluster() as cluster:  # finds the cluster in the background
        assert cluster.run(lambda: (rank, size)) == [(0, 2), (1, 2)]  # noqa: F821, the workers' own names
    status, output, complaint = run("start", "-np", "2")
    assert (status, output) == (1, "") and complaint.startswith("ibfrun: a cluster named default is running")
    assert run("stop") == (0, "the workers end now\n", "")
    assert run("stop") == (0, "no cluster named default was running\n", "")


def test_clusters_have_names(elsewhere):
    status, output, _ = run("start", "-np", "1", "-H", "localhost:1", "--ipython-profile", "other")
    assert status == 0
    assert "starling.Cluster.connect('other') in a notebook; `ibfrun stop --name other` ends them" in output
    assert run("stop") == (0, "no cluster named default was running\n", "")
    assert starling.Cluster.connect("other").run(lambda: size) == [1]  # noqa: F821
    assert run("stop", "--name", "other") == (0, "the workers end now\n", "")


@pytest.mark.parametrize("words, complaint", [
    ("", "ibfrun: error: say start or stop; example: ibfrun start -np 4"),
    ("pause", "invalid choice: 'pause'"),
    ("start", "ibfrun start: error: -np must be the number of ranks, at least 1, not None; example: ibfrun"),
    ("start -np 0", "-np must be the number of ranks, at least 1, not 0"),
    ("start -np 4 -H node-x:4", "host node-x is not this machine"),
    ("start -np 4 --network-interface eth0", "--network-interface does nothing here"),
    ("stop -np 4", "unrecognized arguments: -np 4"),
])
def test_refuses(capsys, words, complaint):
    with pytest.raises(SystemExit) as exit:
        ibfrun.main(words.split())
    assert exit.value.code == 2
    assert complaint in capsys.readouterr().err


def test_wrong_names_are_errors(elsewhere):
    status, _, complaint = run("stop", "--name", "a/b")
    assert status == 1 and complaint.startswith("ibfrun: a cluster's name has letters")


def test_version(capsys):
    ibfrun.main(["-v"])
    assert capsys.readouterr().out == starling.__version__ + "\n"
