"""The workers that ./run network-bench controls; here on one host."""
import os
import secrets
import subprocess
from pathlib import Path

import pytest

TOOL = Path(os.environ["STARLING_BIN"]) / "starling-torch"
LAUNCHERS = ("STARLING_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK")


def answers(ranks, words, lines):
    """Returns each rank's answers to `lines`, as lists of words."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    job = {**clean, "STARLING_JOB": secrets.token_hex(8), "STARLING_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([TOOL, *words], env={**job, "STARLING_RANK": str(rank)}, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    for process in processes:
        process.stdin.write("".join(line + "\n" for line in lines))
        process.stdin.flush()
    ended = [process.communicate(timeout=100) for process in processes]
    assert all(process.returncode == 0 for process in processes), ended
    return [[line.split() for line in out.splitlines()] for out, _ in ended]


METHOD = "dsgd-awc one-peer-exponential"


def test_training_answers_with_seconds_and_moments():
    for plain, late, bytewise, marked in answers(2, ["worker", "lenet", "1"],
                                                 [f"{METHOD} 3", f"{METHOD} 4 message=bfloat16 late=60,2,1",
                                                  f"{METHOD} 2 message=int8", f"{METHOD} 3 marks=1"]):
        assert len(plain) == len(late) == len(bytewise) == 2
        assert float(late[0]) >= 2 * 0.06  # steps 1 and 3
        seconds, _, *moments = map(float, marked)
        assert len(moments) == 3 and moments == sorted(moments)
        assert moments[-1] - moments[0] < seconds


def test_training_reports_unsupported_options_and_continues():
    for unknown, mistaken, late, fine in answers(2, ["worker", "lenet", "1"],
                                                 [f"{METHOD} 1 message=float7", f"{METHOD} 1 massage=float32",
                                                  f"{METHOD} 1 late=soon", "alone - 1"]):
        assert unknown[0] == "cannot" and "'float7'" in unknown
        assert mistaken[0] == "cannot" and "'massage=float32'" in mistaken
        assert late[0] == "cannot"
        assert float(fine[0]) > 0


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_operations_answer_with_seconds(ranks):
    lines = ["one-peer 1000 3", "all-reduce 1000 3", "native-all-reduce 1000 1", "one-peer 70000 1", "one-peer 1000 2"]
    for answered in answers(ranks, ["operations-worker"], lines):
        assert len(answered) == len(lines)
        assert all(float(words[0]) > 0 for words in answered)
