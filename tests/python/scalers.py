"""Stand-ins for torch's GradScaler, which needs CUDA; they cover its two contracts with optimizers."""

import inspect

import torch


class OldScaler:
    """torch 1.13: optimizers with _step_supports_amp_scaling get the scaler as an argument of step()."""

    def __init__(self, scale=1024.0):
        self.factor = scale
        self._per_optimizer_states = {}

    def scale(self, loss):
        return loss * self.factor

    def get_scale(self):
        return self.factor

    def _state(self, optimizer):
        return self._per_optimizer_states.setdefault(id(optimizer), {"found_inf_per_device": {}})

    def unscale_(self, optimizer):
        self._state(optimizer)["found_inf_per_device"]["cpu"] = torch.tensor(float(self._unscale(optimizer, self.factor)))

    @staticmethod
    def _unscale(optimizer, by):
        gradients = [one.grad for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        for one in gradients:
            one.div_(by)
        return not all(bool(torch.isfinite(one).all()) for one in gradients)

    def step(self, optimizer):
        assert optimizer._step_supports_amp_scaling
        self._state(optimizer)
        return optimizer.step(grad_scaler=self)

    def update(self):
        if any(found.item() for state in self._per_optimizer_states.values()
               for found in state["found_inf_per_device"].values()):
            self.factor /= 2
        self._per_optimizer_states = {}


class NewScaler(OldScaler):
    """torch 2: the scaler sets attributes of the optimizer during the step."""

    def step(self, optimizer):
        assert optimizer._step_supports_amp_scaling and "grad_scaler" not in inspect.signature(optimizer.step).parameters
        state = self._state(optimizer)["found_inf_per_device"]
        unscaled = bool(state)
        if not unscaled:
            state["cpu"] = torch.tensor(float(self._unscale(optimizer, 1.0)))
        optimizer.grad_scale = None if unscaled else torch.tensor(self.factor)
        optimizer.found_inf = sum(state.values())
        result = optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf
        return result
