"""The same OAGD round (K inner steps, CG, w = 1) as users of PyTorch libraries write it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torchopt

from .workload import CG_STEPS, INNER_STEP_SIZE, INNER_STEPS, OUTER_STEP_SIZE

Round = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Played = tuple[np.ndarray, np.ndarray]


class Follower(
    torchopt.nn.ImplicitMetaGradientModule,
    linear_solve=torchopt.linear_solve.solve_cg(maxiter=CG_STEPS, atol=0.0),
):
    """The inner problem as in torchopt's guide to implicit gradients: x is a meta-parameter, y a
    parameter. Its solution is not a leaf any more, so every round makes a new module from it."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor):
        super().__init__()
        self.x = x
        self.y = torch.nn.Parameter(y.clone())

    def objective(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return 0.5 * (a @ self.y - b) ** 2 + torch.sum(torch.exp(self.x) * self.y**2)

    def solve(self, a: torch.Tensor, b: torch.Tensor) -> "Follower":
        parameters = tuple(self.parameters())
        optimiser = torch.optim.SGD(parameters, lr=INNER_STEP_SIZE)
        with torch.enable_grad():
            for _ in range(INNER_STEPS):
                loss = self.objective(a, b)
                optimiser.zero_grad()
                loss.backward(inputs=parameters)
                optimiser.step()
        return self


def with_torchopt(stream: Any, rounds: int) -> Callable[[], Played]:
    """torchopt: `ImplicitMetaGradientModule` with its own CG, and an SGD step on x."""
    x0, y0, data = _tensors(stream, rounds)
    lower, upper = _bounds(stream)

    def play() -> Played:
        x = x0.clone().requires_grad_()
        y = y0
        leader = torch.optim.SGD([x], lr=OUTER_STEP_SIZE)
        xs, values = [], []
        for a, b, va, vb in data:
            xs.append(x.item())
            values.append(0.5 * (va @ y - vb).item() ** 2)
            follower = Follower(x, y).solve(a, b)
            loss = 0.5 * (va @ follower.y - vb) ** 2
            leader.zero_grad()
            loss.backward()
            leader.step()
            y = follower.y.detach()
            with torch.no_grad():
                x.clamp_(lower, upper)
        return np.array(xs), np.array(values)

    return play


def with_autograd(stream: Any, rounds: int) -> Callable[[], Played]:
    """No library: the hypergradient by hand with `torch.autograd.grad` and a short CG."""
    x0, y0, data = _tensors(stream, rounds)
    lower, upper = _bounds(stream)

    def play() -> Played:
        x, y = x0.clone(), y0.clone()
        xs, values = [], []
        for a, b, va, vb in data:
            xs.append(x.item())
            values.append(0.5 * (va @ y - vb).item() ** 2)
            x.requires_grad_()
            for _ in range(INNER_STEPS):
                y.requires_grad_()
                (slope,) = torch.autograd.grad(_inner(x, y, a, b), y)
                y = y.detach() - INNER_STEP_SIZE * slope
            y.requires_grad_()
            (target,) = torch.autograd.grad(0.5 * (va @ y - vb) ** 2, y)
            (slope,) = torch.autograd.grad(_inner(x, y, a, b), y, create_graph=True)

            def hvp(p: torch.Tensor, slope: torch.Tensor = slope, y: torch.Tensor = y):
                return torch.autograd.grad(slope, y, p, retain_graph=True)[0]

            v = _conjugate_gradients(hvp, target)
            (cross,) = torch.autograd.grad(slope, x, v)
            y = y.detach()
            x = (x.detach() + OUTER_STEP_SIZE * cross).clamp(lower, upper)
        return np.array(xs), np.array(values)

    return play


def _inner(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return 0.5 * (a @ y - b) ** 2 + torch.sum(torch.exp(x) * y**2)


def _conjugate_gradients(hvp: Callable, target: torch.Tensor) -> torch.Tensor:
    v, r, p = torch.zeros_like(target), target.clone(), target.clone()
    size = r @ r
    enough = (1e-6 + 1e-6 * size.sqrt()) ** 2
    for _ in range(CG_STEPS):
        if size <= enough:
            break
        product = hvp(p)
        length = size / (p @ product)
        v, r = v + length * p, r - length * product
        size, before = r @ r, size
        p = r + size / before * p
    return v


def _tensors(stream: Any, rounds: int) -> tuple[torch.Tensor, torch.Tensor, list[Round]]:
    def tensor(leaf: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(leaf))

    leaves = [*stream.rounds["training"], *stream.rounds["validation"]]
    stacked = [tensor(leaf[:rounds]) for leaf in leaves]
    return tensor(stream.outer_var), tensor(stream.inner_var), list(zip(*stacked, strict=True))


def _bounds(stream: Any) -> tuple[float, float]:
    return float(stream.problem.domain.lower), float(stream.problem.domain.upper)
