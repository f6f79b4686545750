"""Reference training of a whole flock in plain torch, on every rank: all ranks' models, optimizers and batches."""

import numpy as np
import torch


def network(seed, dtype=torch.float64):
    """Different seeds give different networks."""
    torch.manual_seed(1000 + seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(dtype)


def batch(rank, step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7919 * rank + step)
    return (torch.randn(5, 3, dtype=torch.float64, generator=generator).to(dtype),
            torch.randn(5, 2, dtype=torch.float64, generator=generator).to(dtype) + rank)


def loss_of(model, rank, step):
    x, y = batch(rank, step, next(model.parameters()).dtype)
    return ((model(x) - y) ** 2).mean()


def parameters_of(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()]).clone()


class DenseFlock:
    """Models and optimizers of n ranks."""

    def __init__(self, n, make_optimizer, make_model=network, loss=loss_of):
        self.n = n
        self.models = [make_model(rank) for rank in range(n)]
        self.optimizers = [make_optimizer(model) for model in self.models]
        self.loss = loss
        self.steps = 0

    def __getitem__(self, rank):
        return parameters_of(self.models[rank])

    def compute_gradients(self, passes=1):
        """Sums the gradients of `passes` batches; each step has its own batches."""
        for rank, model in enumerate(self.models):
            model.zero_grad()
            for one in range(passes):
                self.loss(model, rank, self.steps * passes + one).backward()
        self.steps += 1

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def mix(self, weights):
        """Row i holds the weights of all models in i's next model."""
        old = [[one.detach().clone() for one in model.parameters()] for model in self.models]
        with torch.no_grad():
            for row, model in zip(weights, self.models):
                for place, parameter in enumerate(model.parameters()):
                    parameter.copy_(sum(float(w) * other[place] for w, other in zip(row, old) if w != 0)
                                    if any(row) else torch.zeros_like(parameter))

    def adapt_then_combine(self, weights):
        self.compute_gradients()
        self.update()
        self.mix(weights)

    def adapt_with_combine(self, weights):
        self.compute_gradients()
        self.mix(weights)
        self.update()

    def average_gradients(self, passes=1):
        self.compute_gradients(passes)
        for same in zip(*(model.parameters() for model in self.models)):
            mean = sum(0 if one.grad is None else one.grad for one in same) / self.n
            for one in same:
                one.grad = mean.clone() if torch.is_tensor(mean) else None

    def average_and_update(self, passes=1):
        self.average_gradients(passes)
        self.update()


def matrix_of(schedule, step):
    weights = np.zeros((schedule.size, schedule.size))
    receivers, senders, values = schedule.entries(step)
    weights[receivers, senders] = values
    return weights


def assert_same(model, expected, what=""):
    got = parameters_of(model)
    off = float((got - expected).abs().max())
    assert off <= 1e-11 * max(1.0, float(expected.abs().max())), f"{what}: off by {off}"


def train_step(optimizer, model, rank, step, loss=loss_of):
    optimizer.zero_grad()
    value = loss(model, rank, step)
    value.backward()
    optimizer.step()
    return value


class CountingSgd(torch.optim.Optimizer):
    """A user-defined optimizer whose step size depends on how often step() was called."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})
        self.asked = 0

    def step(self, closure=None):
        self.asked += 1
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter -= group["lr"] / self.asked * parameter.grad


OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8, nesterov=True),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.01),
    "amsgrad": lambda model: torch.optim.Adam(model.parameters(), lr=0.02, amsgrad=True),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.02),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.05),
    "adadelta": lambda model: torch.optim.Adadelta(model.parameters(), lr=0.5),
    "own": lambda model: CountingSgd(model.parameters()),
}


