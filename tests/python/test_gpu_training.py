"""bench/gpu_training.py, without a GPU: which cases it has, what it makes of the processes' answers, and how it reports failures."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("gpu_training", ROOT / "bench" / "gpu_training.py")
gpu_training = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gpu_training)

GIVEN = SimpleNamespace(rounds=2, seconds=0.1, epochs=3, options={"method": "dsgd-atc"})


def fake_tool(folder, monkeypatch, body):
    """A `starling` that answers as its processes would."""
    tool = folder / "starling"
    tool.write_text("#!/bin/sh\n" + body)
    tool.chmod(0o755)
    monkeypatch.setenv("STARLING_BIN", str(folder))


def case(kind, least=False, bar=1.05):
    return gpu_training.Case("a case", kind, 1, 2, "the limit", bar, least)


def test_cases_have_names_of_their_own():
    cases = gpu_training.cases()
    assert len({(one.name, one.ranks) for one in cases}) == len(cases)
    assert {one.ranks for one in cases if one.kind == "gpt"} == {2, 4}


def test_a_round_takes_as_long_as_its_slowest_rank(tmp_path, monkeypatch):
    answers = [{"rank": 0, "rounds": [[1.0, 2.0], [1.0, 4.0]]}, {"rank": 1, "rounds": [[1.5, 1.0], [0.5, 5.0]]}]
    lines = "".join(f"echo '[{one['rank']}] measured {json.dumps(one)}'\n" for one in answers)
    fake_tool(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/asked\n' + lines)
    assert gpu_training.measure(case("gpt"), GIVEN) == [(1.5, 2.0), (1.0, 5.0)]
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("run -n 2 -- ") and "--rank gpt 1 --rounds 2" in asked and "dsgd-atc" in asked


def test_a_process_that_fails_is_a_failed_case(tmp_path, monkeypatch):
    fake_tool(tmp_path, monkeypatch, "echo 'CUDA out of memory' >&2\nexit 3\n")
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        gpu_training.measure(case("gpt"), GIVEN)


def test_a_missing_answer_is_a_failed_case(tmp_path, monkeypatch):
    fake_tool(tmp_path, monkeypatch, "echo '[0] measured {\"rank\": 0, \"rounds\": [[1, 1]]}'\n")
    with pytest.raises(RuntimeError):
        gpu_training.measure(case("gpt"), GIVEN)


def test_training_with_16_workers_is_compared_with_one_of_the_same_total_batch(tmp_path, monkeypatch):
    reports = "".join(json.dumps({"kind": "report", "epoch": epoch, "seconds": 5 + 2 * epoch}) + "\\n" for epoch in (0.5, 1, 1.5, 3))
    fake_tool(tmp_path, monkeypatch,
              f'echo "$@" >> {tmp_path}/asked\nfor file; do :; done\nprintf \'%b\' \'{reports}{{"kind": "end"}}\\n\' > "$file"\n')
    one = next(one for one in gpu_training.cases() if one.kind == "vgg11")
    assert gpu_training.measure(one, GIVEN) == [(2.0, 2.0)]
    assert gpu_training.judge(one, [(2.0, 4.0)]) == (4.0, 0.5) and not one.met(0.5)
    alone, many = (tmp_path / "asked").read_text().splitlines()
    assert "--workers 1 --batch 512 --epochs 3" in alone and "--workers 16 --batch 32 --epochs 3" in many
    fake_tool(tmp_path, monkeypatch, "echo 'starling: device = cuda: this PyTorch sees no GPU' >&2\nexit 2\n")
    with pytest.raises(RuntimeError, match="sees no GPU"):
        gpu_training.measure(one, GIVEN)


def test_the_median_of_the_rounds_is_compared_with_the_bar():
    seconds, measured = gpu_training.judge(case("gpt"), [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)])
    assert (seconds, measured) == (2.0, 1.5) and not case("gpt").met(measured)
    _, share = gpu_training.judge(case("average", least=True, bar=0.85), [(1.0, 1.0), (0.9, 1.0)])
    assert share == pytest.approx(0.95) and case("average", least=True, bar=0.85).met(share)
