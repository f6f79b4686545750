"""starling.simulate and starling.consensus: known optima, the same bits as the tool, and a released interpreter lock."""

import json
import os
import signal
import subprocess
import threading
import time

import networkx as nx
import numpy as np
import pytest

import starling

A = np.array([[1, 2], [3, 0.5], [1, 1], [0.5, 4]])
B = np.array([[0, 1], [2, -1], [-1, 0], [4, 3.0]])
BEST = (A * B).sum(axis=0) / A.sum(axis=0)


def tool(*arguments):
    command = [os.path.join(os.environ["STARLING_BIN"], "starling"), "simulate", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_own_quadratics_reach_their_optimum():
    result = starling.simulate("gradient-tracking", "ring", a=A, b=B, x0=[5, -5], lr=0.1, steps=2000)
    np.testing.assert_allclose(result.models, np.tile(BEST, (4, 1)), atol=1e-9)
    np.testing.assert_allclose(result.mean_model, BEST, atol=1e-9)
    assert result.gap_known and abs(result.gap[-1]) < 1e-12 and result.distance[-1] < 1e-8
    assert result.n == 4 and result.step[0] == 0 and result.step[-1] == 2000


def test_the_bits_of_the_tool():
    settings = dict(problem="logistic(samples=20,batch=5)", dim=6, lr=0.2, steps=60, seed=7, optimizer="adam", drop=0.1, points=10)
    ours = starling.simulate("dsgd-atc", "base(k=1)", 9, trace=True, threads=1, **settings)
    options = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    theirs = tool("train", "-n", "9", "-m", "dsgd-atc", "-t", "base(k=1)", "--trace", *options)
    np.testing.assert_array_equal(ours.trace, theirs["trace"])
    told = theirs["results"][0]
    curve = np.array(told["curve"])
    names = ("step", "gap", "gradient_norm", "consensus", "bytes", "seconds", "staleness", "distance")
    for index, name in enumerate(names):
        np.testing.assert_array_equal(getattr(ours, name), curve[:, index], err_msg=name)
    np.testing.assert_array_equal(ours.mean_model, told["mean_model"])
    assert ours.topology == told["schedule"] and ours.modelled_seconds == told["modelled_seconds"]
    np.testing.assert_array_equal(ours.models, ours.trace[-1])


def test_the_tools_machines(tmp_path):
    text = """
compute = 0.002
latency = 50e-6
bandwidth = 0.01
[compute_of]
3 = 0.004
[hosts]
ranks_per_host = 2
[[link]]
from = [0, 1]
bandwidth = 1
[[link]]
to = [2]
latency = 0.03
[[straggler]]
nodes = [5]
every = 3
extra = 0.1
[[straggler]]
probability = 0.1
factor = 10
"""
    path = tmp_path / "machines.toml"
    path.write_text(text)
    told = tool("train", "-n", "6", "-t", "ring", "--steps", "50", "--seed", "2", "--time", str(path))["results"][0]
    ours = starling.simulate(topology="ring", n=6, steps=50, seed=2, time=path)
    assert ours.modelled_seconds == told["modelled_seconds"]
    as_dict = dict(compute=0.002, bandwidth=0.01, compute_of={3: 0.004}, hosts=dict(ranks_per_host=2),
                   link=[{"from": [0, 1], "bandwidth": 1}, {"to": [2], "latency": 0.03}],
                   straggler=[dict(nodes=[5], every=3, extra=0.1), dict(probability=0.1, factor=10)])
    assert starling.simulate(topology="ring", n=6, steps=50, seed=2, time=as_dict).modelled_seconds == told["modelled_seconds"]


@pytest.mark.parametrize("time_model,words", [
    ({"latencyy": 1}, "latency"), ({"compute": [1, 2]}, "list of 4"), ({"link": [{"from": [4]}]}, "0 to 3"),
    ({"bandwidth": 0}, "above 0"), ({"straggler": [{}]}, "needs extra"), ({"compute": -1}, "at least 0"),
])
def test_invalid_time_models_are_errors(time_model, words):
    with pytest.raises(ValueError, match=words):
        starling.simulate(n=4, steps=1, time=time_model)


def test_consensus_agrees_with_the_tool():
    told = tool("consensus", "-n", "100", "-t", "ring", "--tolerance", "1e-6", "--seed", "4")["results"][0]
    ours = starling.consensus("ring", 100, tolerance=1e-6, seed=4)
    assert (ours.steps, ours.error, ours.outcome) == (told["steps"], told["error"], told["outcome"])
    np.testing.assert_array_equal(np.column_stack([ours.step, ours.errors, ours.messages_sent]), told["curve"])
    assert starling.consensus(starling.topology("ceca", 100)).steps == 7
    stopped = starling.consensus("ring", 1000, steps=10)
    assert stopped.steps > 10 and stopped.outcome == "computed"


def test_a_user_defined_topology():
    ring = starling.topology("ring", 4)
    own = starling.Topology.from_weights(ring.weights())
    settings = dict(a=A, b=B, lr=0.05, steps=40, trace=True)
    np.testing.assert_allclose(starling.simulate("dsgd-atc", own, **settings).trace,
                               starling.simulate("dsgd-atc", "ring", **settings).trace, rtol=1e-12)
    with pytest.raises(ValueError, match="5 nodes"):
        starling.simulate(topology=starling.topology("ring", 5), a=A, b=B)


def test_a_user_defined_gradient():
    settings = dict(lr=0.1, steps=50, trace=True)
    built_in = starling.simulate("exact-diffusion", "ring", a=A, b=B, x0=[5, -5], **settings)
    own = starling.simulate("exact-diffusion", "ring", 4, gradient=lambda node, x: A[node] * (x - B[node]), x0=[5, -5],
                            value=lambda x: (A * (x - B) ** 2).sum() / 8, optimum=BEST, **settings)
    np.testing.assert_allclose(own.trace, built_in.trace, rtol=1e-12)
    np.testing.assert_allclose(own.gap, built_in.gap, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own.distance, built_in.distance, rtol=1e-9)


def test_a_gradient_may_know_the_step_and_start_anywhere():
    steps = set()

    def gradient(node, x, step):
        steps.add(step)
        return x - node

    result = starling.simulate("allreduce", gradient=gradient, x0=np.arange(6.0).reshape(3, 2), steps=30, lr=0.5, threads=2)
    assert set(range(30)) <= steps
    np.testing.assert_allclose(result.mean_model, 1, atol=1e-6)
    assert not result.gap_known and np.isnan(result.gap[-1]) and result.gradient_norm[-1] < 1e-6


def test_errors_of_a_gradient_come_back():
    def gradient(node, x):
        if node == 2:
            raise KeyError("no data for node 2")
        return x

    with pytest.raises(KeyError, match="node 2"):
        starling.simulate(gradient=gradient, x0=np.ones((3, 2)), steps=3, threads=3)
    with pytest.raises(ValueError, match="3 elements"):
        starling.simulate(n=2, gradient=lambda node, x: np.ones(3), x0=[0, 0], steps=3)


@pytest.mark.parametrize("arguments,words", [
    (dict(), "n, the number"), (dict(a=A), "both a and b"), (dict(n=3, a=A, b=B), "4 nodes"), (dict(n=2, method="sgdd"), "sgdd"),
    (dict(n=2, gradient=lambda node, x: x), "x0"), (dict(n=2, value=len), "gradient"), (dict(n=2, drop=1.0), "lost"),
    (dict(n=4, a=A, b=B, problem="mlp"), "one of"), (dict(n=2, precision="int8"), "float32"),
])
def test_invalid_simulations_are_errors(arguments, words):
    with pytest.raises(ValueError, match=words):
        starling.simulate(**arguments)


def test_a_problem_is_a_function():
    problem = starling.problem("least-squares", 5, 4, seed=1)
    best = problem.minimize()
    assert np.linalg.norm(problem.gradient(best)) < 1e-9 < np.linalg.norm(problem.gradient(best, node=0))
    assert problem.value(best) < problem.value(best + 0.01)
    with pytest.warns(DeprecationWarning, match=r"minimise\(\) is the older spelling of minimize\(\)"):
        np.testing.assert_array_equal(problem.minimise(), best)
    result = starling.simulate("gradient-tracking", "ring", problem=problem, lr=0.1, steps=3000)
    np.testing.assert_allclose(result.mean_model, best, atol=1e-6)


def test_the_interpreter_lock_is_free_meanwhile():
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    problem = starling.problem("logistic", 64, 50)
    problem.minimize()
    thread = threading.Thread(target=count)
    thread.start()
    steps, meanwhile, seconds = 500, 0, 0.0
    while seconds < 0.1:  # long enough for the other thread to count, on any machine
        steps *= 2
        before = counted[0]
        seconds = starling.simulate("dsgd-atc", "exponential", problem=problem, steps=steps, threads=1).wall_seconds
        meanwhile = counted[0] - before
    done.set()
    thread.join()
    assert meanwhile > 20, (seconds, meanwhile)


def test_control_c_ends_a_simulation():
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        starling.simulate(n=64, problem="logistic", dim=50, steps=10**9)


def test_how_results_show_themselves():
    result = starling.simulate(n=4, steps=20)
    assert "dsgd-awc on one-peer-exponential" in repr(result) and "<svg" in result._repr_html_() and "gap" in dir(result)
    assert "<table" in starling.consensus("ring", 8)._repr_html_()
    assert "logistic" in repr(starling.problems()) and "gradient-tracking" in repr(starling.methods())
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert len(result.plot().get_lines()) == 4
    assert result.plot("consensus", x="seconds").get_xlabel() == "seconds"
    with pytest.raises(ValueError, match="no curve"):
        result.plot("speed")


def test_a_run_that_diverged_says_so():
    result = starling.simulate("dsgd-atc", "ring", 4, lr=50, steps=5000)
    assert "diverged, gap" in repr(result) and "was not finite at step" in result.diverged
    assert ("diverged", result.diverged) in result._rows()
    fine = starling.simulate("dsgd-atc", "ring", 4, lr=0.01, steps=10)
    assert fine.diverged == "" and "diverged" not in repr(fine)


@pytest.mark.parametrize("lr", [-1, float("nan"), float("inf")])
def test_invalid_learning_rates_are_refused(lr):
    with pytest.raises(ValueError, match="lr is a finite number of at least 0, not "):
        starling.simulate("dsgd-atc", "ring", 4, lr=lr)


@pytest.mark.parametrize("settings, text", [
    (dict(lr="fast"), "lr must be a number, not the str 'fast'"),
    (dict(seed="x"), "seed must be a whole number from 0 to .*, not the str 'x'"),
    (dict(decay_every=-1.5), "decay_every must be a whole number of at least 0, not the float -1.5"),
    (dict(steps=1.5), "steps must be a whole number of at least 0, not the float 1.5"),
    (dict(method=None), "method must be a text, not the NoneType None"),
    (dict(n="4"), "n must be a whole number of at least 1, not the str '4'"),
])
def test_settings_of_another_type_are_named(settings, text):
    with pytest.raises(TypeError, match=text):
        starling.simulate(**{"method": "dsgd-atc", "topology": "ring", "n": 4, "a": A, "b": B, **settings})


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to .*, not -1"):
        starling.simulate("dsgd-atc", "ring", 4, seed=-1)
    with pytest.raises(ValueError, match="dim must be a whole number of at least 1, not 0"):
        starling.problem("quadratic", 4, dim=0)


def test_matrices_and_graphs_are_topologies():
    ring = starling.topology("ring", 4)
    expected = starling.simulate("dsgd-atc", ring, 4, lr=0.05, steps=20).models
    for given in (ring.weights(), ring.weights().tolist(), nx.cycle_graph(4)):
        np.testing.assert_allclose(starling.simulate("dsgd-atc", given, 4, lr=0.05, steps=20).models, expected)
        assert starling.consensus(given).steps == starling.consensus(ring).steps
    with pytest.raises(ValueError, match="is for 4 ranks, not for 3"):
        starling.simulate("dsgd-atc", ring.weights(), 3)


def test_push_sum_refuses_columns_that_do_not_sum_to_one():
    rows_only = [[.5, .5, 0], [0, .5, .5], [.25, .25, .5]]
    for method in ("push-sum", "push-diging", "async-push-sum"):
        with pytest.raises(ValueError, match="columns sum to one.*gives rank 0 a total weight of 0.75"):
            starling.simulate(method, rows_only, 3)
        starling.simulate(method, starling.Topology.from_weights(np.transpose(rows_only), push=True), 3, steps=5)
