"""Decentralized logistic regression as one writes it with numpy: the peer of `starling simulate train`.

    python3 bench/peer_numpy.py [--nodes 300] [--dim 100] [--samples 100] [--seconds 0.2]

Adapt-then-combine SGD on the static exponential graph, float64, full gradients with the non-convex regularizer;
all nodes at once by batched matrix products, in the faster of their two common forms. Prints one JSON line.
"""

import argparse
import json
import time

import numpy as np


def exponential_weights(nodes):
    """Every node averages with those 1, 2, 4, ... ahead."""
    offsets = [0]
    while 2 ** (len(offsets) - 1) < nodes:
        offsets.append(2 ** (len(offsets) - 1))
    weights = np.zeros((nodes, nodes))
    for offset in offsets:
        weights[np.arange(nodes), (np.arange(nodes) + offset) % nodes] += 1 / len(offsets)
    return weights


def matmul_margins(rows, x):
    return np.matmul(rows, x[:, :, None])[:, :, 0]


def matmul_sums(rows, slopes):
    return np.matmul(slopes[:, None, :], rows)[:, 0, :]


def einsum_margins(rows, x):
    return np.einsum("nmd,nd->nm", rows, x)


def einsum_sums(rows, slopes):
    return np.einsum("nmd,nm->nd", rows, slopes)


def gradient(rows, x, regularizer, margins, sums):
    slopes = -1 / (1 + np.exp(margins(rows, x)))
    squares = 1 + x * x
    return sums(rows, slopes) / rows.shape[1] + regularizer * 2 * x / (squares * squares)


def seconds_per_call(seconds, call):
    """The best of five batches."""
    call()  # warms up the caches
    best = float("inf")
    for _ in range(5):
        calls, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 5:
            call()
            calls += 1
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    rows = random.standard_normal((given.nodes, given.samples, given.dim))
    weights = exponential_weights(given.nodes)
    results = {}
    for name, margins, sums in (("matmul", matmul_margins, matmul_sums), ("einsum", einsum_margins, einsum_sums)):
        state = {"x": np.zeros((given.nodes, given.dim))}

        def bare():
            gradient(rows, state["x"], 0.01, margins, sums)

        def step():
            state["x"] = weights @ (state["x"] - 0.1 * gradient(rows, state["x"], 0.01, margins, sums))

        results[name] = {
            "gradient": seconds_per_call(given.seconds, bare),
            "step": seconds_per_call(given.seconds, step),
        }
    best = min(results, key=lambda name: results[name]["step"])
    print(json.dumps({"numpy": np.__version__, "form": best, **results[best], "all": results}))


if __name__ == "__main__":
    main()
