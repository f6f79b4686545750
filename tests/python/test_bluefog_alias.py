"""The package bluefog, an alias of starling, and BlueFog's launcher."""

import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import starling
from starling import bfrun

SOURCES = str(Path(__file__).parents[2] / "python")  # after the built package, which has no bluefog
sys.path.append(SOURCES)

from bluefog.common.util import env  # noqa: E402


class TestEnv:
    def test_sets_and_restores(self, monkeypatch):
        monkeypatch.setenv("STARLING_TEST_OLD", "before")
        monkeypatch.delenv("STARLING_TEST_NEW", raising=False)
        with env(STARLING_TEST_OLD="during", STARLING_TEST_NEW=3):
            assert os.environ["STARLING_TEST_OLD"] == "during"
            assert os.environ["STARLING_TEST_NEW"] == "3"
        assert os.environ["STARLING_TEST_OLD"] == "before"
        assert "STARLING_TEST_NEW" not in os.environ

    def test_none_removes(self, monkeypatch):
        monkeypatch.setenv("STARLING_TEST_OLD", "before")
        with env(STARLING_TEST_OLD=None, STARLING_TEST_NEVER_THERE=None):
            assert "STARLING_TEST_OLD" not in os.environ
        assert os.environ["STARLING_TEST_OLD"] == "before"
        assert "STARLING_TEST_NEVER_THERE" not in os.environ

    def test_restores_after_errors_and_after_changes_inside(self, monkeypatch):
        monkeypatch.setenv("STARLING_TEST_OLD", "before")
        with pytest.raises(KeyError):
            with env(STARLING_TEST_OLD="during", STARLING_TEST_NEW="during"):
                del os.environ["STARLING_TEST_NEW"]
                os.environ["STARLING_TEST_OLD"] = "changed"
                raise KeyError
        assert os.environ["STARLING_TEST_OLD"] == "before"
        assert "STARLING_TEST_NEW" not in os.environ


def test_topology_util_has_all_names():
    import bluefog
    from bluefog.common import topology_util
    from starling import topology_util as ours

    assert bluefog.__version__ == starling.__version__
    assert set(ours.__all__) <= set(vars(topology_util))
    assert topology_util.ExponentialTwoGraph is ours.ExponentialTwoGraph


def test_torch_is_the_same_module_under_every_name(tmp_path):
    """Runs in its own process with a stand-in for starling.torch, since only the aliasing matters."""
    (tmp_path / "mpi_ops.py").write_text("count = 0\n")
    (tmp_path / "optimizers.py").write_text("from .mpi_ops import count\n")
    program = textwrap.dedent("""
        import sys, types
        import starling
        package = types.ModuleType("starling.torch")
        package.__path__, package.init = [sys.argv[1]], lambda: "flying"
        sys.modules["starling.torch"] = starling.torch = package
        sys.path.append(sys.argv[2])

        import bluefog.torch as bf
        import bluefog.torch.mpi_ops
        from bluefog.torch import init, optimizers, topology_util
        from bluefog.torch.optimizers import count
        import starling.torch.mpi_ops, starling.topology_util

        assert bf is starling.torch and init() == "flying"
        assert bluefog.torch.mpi_ops is starling.torch.mpi_ops and bf.mpi_ops is starling.torch.mpi_ops
        assert optimizers is sys.modules["starling.torch.optimizers"]
        assert topology_util is starling.topology_util
        assert sys.modules["bluefog.torch.topology_util"] is starling.topology_util
    """)
    done = subprocess.run([sys.executable, "-c", program, tmp_path, SOURCES], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def ran(monkeypatch):
    """main(words) -> the words that would have been executed."""
    def main(*words):
        bfrun.main(words)
        return executed
    executed = []
    monkeypatch.setattr(starling, "tool_path", lambda: "/bin/starling-of-the-test", raising=False)
    monkeypatch.setattr(os, "execv", lambda path, words: executed.extend([path, *words]))
    monkeypatch.delenv("BLUEFOG_TIMELINE", raising=False)
    return main


STARTED = ["/bin/starling-of-the-test", "starling", "run", "-n", "4", "--"]


@pytest.mark.parametrize("hosts", [
    [], ["-H", "localhost:4"], ["-H", "localhost"], ["-H", "127.0.0.1:2,localhost:2"], ["--verbose"],
    ["--hosts", "localhost:9"], ["-H", f"{socket.gethostname()}:4"],
])
def test_bfrun_becomes_starling_run(ran, hosts):
    assert ran("-np", "4", *hosts, "python", "train.py", "-np", "7", "--verbose") == [
        *STARTED, "python", "train.py", "-np", "7", "--verbose"]
    assert "BLUEFOG_TIMELINE" not in os.environ


def test_bfrun_takes_dashes_before_the_command(ran):
    assert ran("--num-proc", "4", "--", "./train", "--", "x y") == [*STARTED, "./train", "--", "x y"]


def test_bfrun_timeline(ran):
    with env(BLUEFOG_TIMELINE=None):
        assert ran("-np", "4", "--timeline-filename", "trace_", "true") == [*STARTED, "true"]
        assert os.environ["BLUEFOG_TIMELINE"] == "trace_"


def test_bfrun_hostfile(ran, tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# this machine\n\nlocalhost slots=3  # most\n127.0.0.1 max-slots=9 slots=1\n")
    assert ran("-np", "4", "-hostfile", str(file), "true") == [*STARTED, "true"]
    file.write_text("localhost slots=3\n")
    with pytest.raises(SystemExit):
        ran("-np", "4", "--hostfile", str(file), "true")


def test_bfrun_says_what_it_runs_and_which_version(ran, capsys):
    ran("-np", "4", "--verbose", "echo", "a b")
    assert capsys.readouterr().err == "starling run -n 4 -- echo 'a b'\n"
    ran("-v")
    assert capsys.readouterr().out == starling.__version__ + "\n"


@pytest.mark.parametrize("words, complaint", [
    ("python train.py", "-np must be the number of ranks, at least 1, not None; example: bfrun -np 4 python"),
    ("-np 0 true", "-np must be the number of ranks, at least 1, not 0"),
    ("-np four true", "invalid int value: 'four'"),
    ("-np 4", "no command to run; example: bfrun -np 4 python"),
    ("-np 4 --", "no command to run"),
    ("-np 4 -H node-x:4 true", "host node-x is not this machine .* starling run --hosts node-x:4"),
    ("-np 4 -H localhost:2,node-x:2 true", "host node-x is not this machine"),
    ("-np 4 -H localhost:3 true", "3 slots are too few for 4 ranks; write -H localhost:4"),
    ("-np 4 -H localhost:many true", "'localhost:many' is not a host; write HOST:SLOTS, as in: -H localhost:4"),
    ("-np 4 -H localhost: true", "'localhost:' is not a host"),
    ("-np 4 -H localhost:4, true", "'' is not a host"),
    ("-np 4 -hostfile no-such-file true", "-hostfile no-such-file cannot be read: No such file"),
    ("-np 4 -H localhost:4 -hostfile f true", "not allowed with"),
    ("-np 4 --network-interface eth0 true", "--network-interface does nothing here: all ranks run on this"),
    ("-np 4 --extra-mpi-flags=-x=A true", "--extra-mpi-flags does nothing here: there is no mpirun"),
    ("-np 4 -p 22 true", "--ssh-port does nothing here"),
    ("-np 4 --use-infiniband true", "--use-infiniband does nothing here"),
    ("-np 4 --prefix /opt/bin/ true", "--prefix does nothing here: there is no mpirun"),
    ("-np 4 --verb true", "unrecognized arguments: --verb"),
])
def test_bfrun_refuses(ran, capsys, words, complaint):
    with pytest.raises(SystemExit) as exit:
        ran(*words.split())
    assert exit.value.code == 2
    assert re.search(f"bfrun: error: .*{complaint}", capsys.readouterr().err)


def test_bfrun_explains_mpi_flags(ran, capsys):
    with pytest.raises(SystemExit):
        ran("-np", "4", "--extra-mpi-flags", " -x OMP_NUM_THREADS=2", "true")
    assert "NAME=VALUE in front of the command instead of -x" in capsys.readouterr().err
