"""starling.topology: weights compared with their definitions, every family, conversion from and to graphs."""

import json
import math
import os
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

import starling
from starling.topologies import schedule_from

FAMILIES = [family["name"] for family in starling.topologies()]
GIVEN = {"hierarchical": "hierarchical(outer=exponential, local=1)", "periodic": "periodic(ring, h=3)", "live": "live(ring, members=[0])",
         "inner-outer-exponential": "inner-outer-exponential(local=4)", "inner-outer-ring": "inner-outer-ring(local=4)",
         "bfs-tree": "bfs-tree(ring)", "custom": None}


def spec_of(name):
    """The family with its required parameters; None if it needs a file."""
    if name in GIVEN:
        return GIVEN[name]
    family = next(one for one in starling.topologies() if one["name"] == name)
    needed = [one["name"] for one in family["parameters"] if one["default"] is None]
    return f"{name}({', '.join(f'{key}={value}' for key, value in zip(needed, ['ring'] * len(needed)))})" if needed else name


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("name", FAMILIES)
def test_rows_sum_to_one(name, n):
    spec = spec_of(name)
    if spec is None:
        pytest.skip("needs a file")
    try:
        topology = starling.topology(spec, n, seed=3)
    except starling.InvalidArgument as error:
        pytest.skip(str(error))  # the family does not support n; C++ tests check which n are valid
    for step in range(min(max(topology.period, 1), 12)):
        weights = topology.weights(step)
        sums = weights.sum(axis=0 if topology._schedule.push_sum else 1)
        np.testing.assert_allclose(sums, 1, atol=1e-12)


def test_enough_families_take_every_n():
    taken = 0
    for name in FAMILIES:
        try:
            starling.topology(spec_of(name) or "", 5)
            taken += 1
        except starling.InvalidArgument:
            pass
    assert taken >= 25


def test_ring_and_exponential_as_defined():
    ring = np.zeros((6, 6))
    for i in range(6):
        ring[i, [i, (i - 1) % 6, (i + 1) % 6]] = 1 / 3
    np.testing.assert_allclose(starling.topology("ring", 6).weights(), ring)
    exponential = np.zeros((6, 6))  # tau = 3: i receives from i + 1, i + 2, i + 4
    for i in range(6):
        exponential[i, [i, (i + 1) % 6, (i + 2) % 6, (i + 4) % 6]] = 1 / 4
    np.testing.assert_allclose(starling.topology("exponential", 6).weights(), exponential)


def test_star_has_metropolis_weights():
    star = np.eye(5)
    star[0, :] = star[:, 0] = 1 / 5
    for i in range(1, 5):
        star[i, i] = 4 / 5
    np.testing.assert_allclose(starling.topology("star", 5).weights(), star)


def test_one_peer_exponential_moves_on():
    topology = starling.topology("one-peer-exponential", 8)
    assert topology.period == 3
    for step in range(5):
        expected = np.zeros((8, 8))
        for i in range(8):
            expected[i, [i, (i + 2 ** (step % 3)) % 8]] = 1 / 2
        np.testing.assert_allclose(topology.weights(step), expected)


def test_a_period_of_base_is_the_average():
    topology = starling.topology("base(k=1)", 5)
    product = np.eye(5)
    for step in range(topology.period):
        product = topology.weights(step) @ product
    np.testing.assert_allclose(product, 1 / 5, atol=1e-12)


@pytest.mark.parametrize("n,k", [(5, 1), (8, 1), (7, 2), (9, 2)])
def test_ceca_with_its_two_blocks_is_exact(n, k):
    topology = starling.topology(f"ceca(k={k})", n)
    a, b = np.random.default_rng(1).normal(size=n), np.zeros(n)
    mean = a.mean()
    for step in range(topology.period):
        both = np.concatenate([a, b])
        a, b = topology.weights(step) @ both, topology.weights(step, block_b=True) @ both
    np.testing.assert_allclose(a, mean, atol=1e-12)
    assert topology.weights().shape == (n, 2 * n)


def test_block_b_is_refused_elsewhere():
    with pytest.raises(ValueError, match="CECA"):
        starling.topology("ring", 4).weights(block_b=True)


def test_sparse_and_dense_agree():
    topology = starling.topology("torus", 12)
    sparse = topology.weights(sparse=True)
    assert sparse.format == "csr" and sparse.nnz == 5 * 12
    np.testing.assert_array_equal(sparse.toarray(), topology.weights())


def test_analysis_knows_the_formulas():
    ring = starling.topology("ring", 10).analysis()
    assert ring.rho == pytest.approx(1 / 3 + 2 / 3 * math.cos(2 * math.pi / 10))
    assert ring.symmetric and ring.exact_rounds is None and ring.peers == 2 and ring.messages_per_step == 20
    hypercube = starling.topology("one-peer-hypercube", 8).analysis()
    assert hypercube.exact_rounds == 3 and hypercube.exact_from_any_step
    assert starling.topology("ceca", 13).analysis().exact_rounds == 4
    assert starling.topology("ring", 4).analysis().step_seconds(1.25e9) == pytest.approx(2.0, abs=0.1)


def test_analysis_agrees_with_the_tool():
    tool = subprocess.run([os.path.join(os.environ["STARLING_BIN"], "starling"), "topo", "grid", "-n", "12", "--json"],
                          check=True, capture_output=True, text=True)
    told = json.loads(tool.stdout)["analysis"]
    found = starling.topology("grid", 12).analysis()
    assert (found.symmetric, found.connected, found.lambda_min) == (told["symmetric"], told["connected"], told["lambda_min"])
    assert found.messages_per_step == told["messages_per_step"]


def test_neighbors_of_a_rank():
    self_weight, sources, destinations, group = starling.topology("exponential", 6).neighbors(5)
    assert (self_weight, sources, sorted(destinations), group) == (0.25, {0: 0.25, 1: 0.25, 3: 0.25}, [1, 3, 4], [])
    assert starling.topology("complete", 3).neighbors(1).group == [0, 1, 2]


def test_graph_points_from_sender_to_receiver():
    graph = starling.topology("one-way-ring", 4).graph()
    assert isinstance(graph, nx.DiGraph)
    hears = starling.topology("one-way-ring", 4).neighbors(0).sources
    assert all(graph.has_edge(sender, 0) for sender in hears)
    assert graph.number_of_edges() == 8 and graph.edges[0, 0]["weight"] == 0.5


def test_given_weights_are_returned_unchanged():
    weights = np.array([[0.5, 0.5, 0], [0, 0.25, 0.75], [1, 0, 0]])
    topology = starling.Topology.from_weights(weights)
    np.testing.assert_array_equal(topology.weights(), weights)
    assert topology.name == starling.Topology.from_weights(weights.copy()).name
    assert topology.name != starling.Topology.from_weights(weights[::-1, ::-1]).name
    assert starling.Topology.from_weights(weights, name="mine").name == "mine"


def test_rows_must_sum_to_one():
    with pytest.raises(starling.InvalidArgument, match=r"row 0 of the weights sums to 4, not to 1") as refused:
        starling.Topology.from_weights(np.ones((4, 4)))
    assert "push=True" not in str(refused.value)  # the columns do not sum to one, either
    weights = np.array([[0.5, 0.5, 0], [0, 0.25, 0.75], [0.9, 0, 0]])
    with pytest.raises(starling.InvalidArgument, match="row 2 of the weights sums to 0.9"):
        starling.Topology.from_weights(weights)
    starling.Topology.from_weights(np.full((3, 3), 1 / 3, dtype=np.float32))


def test_ranks_in_separate_parts_get_one_warning():
    program = """
import numpy as np, starling
starling.Topology.from_weights(np.full((4, 4), 1 / 4))
print("connected", flush=True)
starling.Topology.from_weights(np.eye(4), name="nobody")
starling.Topology.from_weights(np.kron(np.eye(2), np.full((2, 2), 1 / 2)), name="pairs")
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=os.environ | {"STARLING_LOG": "normal"}, check=True)
    assert done.stdout == ("connected\nstarling: the graph of nobody is not connected: nothing of rank 0 ever reaches rank 1, so "
                           "the ranks will not agree on their mean while it is the topology\n")


@pytest.mark.parametrize("rows, text", [
    ("[[.5, .5, 0], [.5, .5, 0], [0, .5, .5]]", "nothing of rank 2 ever reaches rank 0"),
    ("[[.5, .5, 0], [.5, .25, .25], [0, 0, 1]]", "nothing of rank 0 ever reaches rank 2"),
])
def test_a_rank_that_others_never_hear_gets_a_warning(rows, text):
    done = subprocess.run([sys.executable, "-c", f"import starling; starling.Topology.from_weights({rows})"], capture_output=True,
                          text=True, env=os.environ | {"STARLING_LOG": "normal"}, check=True)
    assert text in done.stderr


def test_columns_sum_to_one_for_push_sum():
    weights = np.array([[0.5, 0.5, 0], [0, 0.25, 0.75], [1, 0, 0]]).T
    topology = starling.Topology.from_weights(weights, push=True)
    np.testing.assert_array_equal(topology.weights(), weights)
    assert topology._schedule.push_sum
    with pytest.raises(starling.InvalidArgument, match=r"row 0 of the weights sums to 1.5.*Topology.from_weights\(\.\.\., push=True\)"):
        starling.Topology.from_weights(weights)
    with pytest.raises(starling.InvalidArgument, match="column 0 of the weights sums to 1.5"):
        starling.Topology.from_weights(weights.T, push=True)


def test_negative_weights_are_asked_for():
    weights = np.array([[2.0, -1.0], [-1.0, 2.0]])
    for refused in (lambda: starling.Topology.from_weights(weights), lambda: schedule_from(weights.tolist(), 2)):
        with pytest.raises(starling.InvalidArgument, match=r"row [01], column [01] of the weights is -1.*Topology.from_weights\(\.\.\., negative=True\)"):
            refused()
    np.testing.assert_array_equal(starling.Topology.from_weights(weights, negative=True).weights(), weights)
    laplacian = starling.topology("star(weights=laplacian)", 8)
    assert laplacian.weights().min() < -0.5
    np.testing.assert_allclose(starling.Topology.from_weights(laplacian.weights(), negative=True).weights(), laplacian.weights())


def test_a_matrix_of_another_size_is_refused_before_anything_is_said_of_it():
    program = """
import numpy as np, starling
from starling.topologies import schedule_from
try:
    schedule_from(np.eye(4), 3)
except starling.InvalidArgument as error:
    print(error, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env=os.environ | {"STARLING_LOG": "normal"})
    assert done.stdout == "the matrix of weights is for 4 ranks, not for 3\n"
    assert done.stderr == ""


def test_arguments_of_another_type_are_named():
    with pytest.raises(TypeError, match="n must be a whole number from 1 to .*, not the str '4'"):
        starling.topology("ring", "4")
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to .*, not -1"):
        starling.topology("random-matching", 4, seed=-1)
    with pytest.raises(TypeError, match=r"a topology's name, not the list .*Topology.from_weights"):
        starling.topology([[1]], 1)


def test_undirected_graphs_get_metropolis_weights():
    star = starling.Topology.from_graph(nx.star_graph(3)).weights()
    np.testing.assert_allclose(star, star.T)
    np.testing.assert_allclose(star.sum(axis=0), 1)
    np.testing.assert_allclose(star[0], 1 / 4)
    np.testing.assert_allclose(star[1], [1 / 4, 3 / 4, 0, 0])
    np.testing.assert_allclose(starling.Topology.from_graph(nx.path_graph(5)).weights(),
                               starling.topology("chain(weights=metropolis)", 5).weights())


@pytest.mark.parametrize("weights", [np.ones((2, 3)), np.zeros((0, 0)), np.array([[np.nan]])])
def test_matrices_that_are_no_topology(weights):
    with pytest.raises(ValueError):
        starling.Topology.from_weights(weights)


@pytest.mark.parametrize("convert", [np.asarray, np.ndarray.tolist, lambda weights: pytest.importorskip("torch").tensor(weights)],
                         ids=["numpy", "list", "torch"])
@pytest.mark.parametrize("weights, text", [
    (np.ones((4, 4)), "row 0 of the weights sums to 4"),
    (np.ones((4, 3)), r"a square matrix, not \(4, 3\)"),
    (np.full((4, 4), np.nan), "a finite number"),
    (np.array([[1, 0.5], [0, 0.5]]), "row 0 of the weights sums to 1.5.*push=True"),
    (np.ones((2, 2, 2)), "a square matrix of numbers"),
], ids=["sums", "shape", "nan", "columns", "cube"])
def test_what_is_wrong_with_a_matrix_is_the_error(convert, weights, text):
    with pytest.raises(starling.InvalidArgument, match=text):
        schedule_from(convert(weights), 4)


@pytest.mark.parametrize("given", [5, None, object()])
def test_invalid_topologies_are_errors(given):
    with pytest.raises(TypeError, match="a topology is a name"):
        schedule_from(given, 4)


def test_graphs_become_topologies():
    topology = starling.topology("torus", 9)
    again = starling.Topology.from_graph(topology.graph())
    np.testing.assert_allclose(again.weights(), topology.weights())
    plain = starling.Topology.from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]))
    np.testing.assert_allclose(plain.weights(), [[1 / 2, 0, 1 / 2], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    with pytest.raises(ValueError, match="0 .. 2"):
        starling.Topology.from_graph(nx.path_graph(["a", "b", "c"]))


def test_unknown_names_say_what_there_is():
    with pytest.raises(starling.InvalidArgument, match="exponential"):
        starling.topology("exponental", 4)


def test_listing_and_html():
    listing = starling.topologies()
    base = next(one for one in listing if one["name"] == "base")
    assert base["changing"] and base["parameters"][0]["name"] == "k"
    assert "base(k=1)" in repr(listing) and "<table" in listing._repr_html_()
    html = starling.topology("ring", 5)._repr_html_()
    assert "<svg" in html and "rho" in html
    assert "<svg" not in starling.topology("ring", 100)._repr_html_()


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert starling.topology("one-peer-exponential", 8).plot(step=1).get_title().endswith("step 1")
