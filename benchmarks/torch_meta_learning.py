"""The rounds of online meta-learning as one writes them in plain PyTorch.

A model is a flat list of tensors: of each block a kernel, a scale and a shift, then the head's
weight and bias. Every method gives the leader's hypergradient on a list of tasks.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

Tensors = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]
Task = tuple[Batch, Batch]

products: list[int] = []
"""An entry for each Hessian-vector product of CG, to be counted."""


def parameters(model: Any) -> Tensors:
    """A `CNN` of obax as tensors in PyTorch's layouts."""
    found = []
    for block in model.features.blocks:
        found += [np.transpose(block.kernel, (3, 2, 0, 1)), block.scale, block.shift]
    found += [np.transpose(model.head.weight), model.head.bias]
    return [torch.from_numpy(np.array(leaf)).requires_grad_() for leaf in found]


def as_numpy(gradients: Any) -> np.ndarray:
    """All numbers of a gradient in the order of obax's leaves, PyTorch's layouts undone."""
    *blocks, weight, bias = [g.detach().numpy() for g in gradients]
    kernels = [np.transpose(g, (2, 3, 1, 0)) if g.ndim == 4 else g for g in blocks]
    return np.concatenate([g.reshape(-1) for g in [*kernels, weight.T, bias]])


def as_task(task: Any) -> Task:
    """A task of obax, images with their channels first."""
    support, query = (
        (
            torch.from_numpy(np.array(inputs).transpose(0, 3, 1, 2).copy()),
            torch.from_numpy(np.array(labels)).long(),
        )
        for inputs, labels in (task["support"], task["query"])
    )
    return support, query


def features(parameters: Tensors, inputs: torch.Tensor) -> torch.Tensor:
    """The blocks; flattened in obax's order, channels last."""
    for kernel, scale, shift in zip(*[iter(parameters[:-2])] * 3, strict=True):
        inputs = F.conv2d(inputs, kernel, padding=1)
        inputs = F.batch_norm(inputs, None, None, scale, shift, training=True)
        inputs = F.max_pool2d(F.relu(inputs), 2)
    return inputs.permute(0, 2, 3, 1).flatten(1)


def loss(parameters: Tensors, batch: Batch) -> torch.Tensor:
    """The mean cross-entropy."""
    logits = F.linear(features(parameters, batch[0]), parameters[-2], parameters[-1])
    return F.cross_entropy(logits, batch[1])


def prox_linear(x: Tensors, task: Task, beta: float) -> Tensors:
    """d/dx of L(x - beta grad L(x; support); query): one double backward."""
    slopes = torch.autograd.grad(loss(x, task[0]), x, create_graph=True)
    adapted = [leaf - beta * slope for leaf, slope in zip(x, slopes, strict=True)]
    return list(torch.autograd.grad(loss(adapted, task[1]), x))


def implicit(
    x: Tensors, task: Task, beta: float, steps: int, proximity: float, budget: int
) -> Tensors:
    """K steps on L + (lambda / 2) |y - x|^2, then lambda (H + lambda)^-1 grad f by CG."""
    y = _descend(lambda z: loss(z, task[0]), x, beta, steps, proximity)
    left = list(torch.autograd.grad(loss(y, task[1]), y))
    # The graph of the gradient is kept: a product is one backward pass through it.
    kept = torch.autograd.grad(loss(y, task[0]), y, create_graph=True)
    v = _conjugate_gradients(kept, y, left, proximity, budget)
    return [proximity * leaf for leaf in v]


def implicit_head(
    x: Tensors, task: Task, beta: float, steps: int, proximity: float, budget: int
) -> Tensors:
    """The same with the head alone inside; the features once per task."""
    embedded, query = (features(x, batch[0]) for batch in task)
    support = embedded.detach()
    y = _descend(
        lambda z: F.cross_entropy(F.linear(support, *z), task[0][1]), x[-2:], beta, steps, proximity
    )
    outer = F.cross_entropy(F.linear(query, *y), task[1][1])
    left = list(torch.autograd.grad(outer, y, retain_graph=True))
    inner = F.cross_entropy(F.linear(embedded, *y), task[0][1])
    kept = torch.autograd.grad(inner, y, create_graph=True)
    v = _conjugate_gradients(kept, y, left, proximity, budget)
    through = torch.autograd.grad(outer - _dot(list(kept), v), x[:-2])
    return [*through, *(proximity * leaf for leaf in v)]


def maml(x: Tensors, task: Task, beta: float, steps: int) -> Tensors:
    """d/dx through K steps of all parameters."""
    y = x
    for _ in range(steps):
        slopes = torch.autograd.grad(loss(y, task[0]), y, create_graph=True)
        y = [leaf - beta * slope for leaf, slope in zip(y, slopes, strict=True)]
    return list(torch.autograd.grad(loss(y, task[1]), x))


def head_only(x: Tensors, task: Task, beta: float, steps: int, *, move_head: bool) -> Tensors:
    """ANIL, and ITD-BiO where the leader does not move the head: the features once per task."""
    embedded, query = (features(x, batch[0]) for batch in task)
    head = x[-2:] if move_head else [leaf.detach().requires_grad_() for leaf in x[-2:]]
    for _ in range(steps):
        value = F.cross_entropy(F.linear(embedded, *head), task[0][1])
        slopes = torch.autograd.grad(value, head, create_graph=True)
        head = [leaf - beta * slope for leaf, slope in zip(head, slopes, strict=True)]
    value = F.cross_entropy(F.linear(query, *head), task[1][1])
    if move_head:
        return list(torch.autograd.grad(value, x))
    return [*torch.autograd.grad(value, x[:-2]), *(torch.zeros_like(leaf) for leaf in x[-2:])]


def average(one: Callable[..., Tensors], x: Tensors, tasks: list[Task], **options: Any) -> Tensors:
    """The mean hypergradient over tasks, one task at a time."""
    total = [torch.zeros_like(leaf) for leaf in x]
    for task in tasks:
        for sum_, gradient in zip(total, one(x, task, **options), strict=True):
            sum_ += gradient / len(tasks)
    return total


def _descend(
    objective: Callable[[Tensors], torch.Tensor],
    start: Tensors,
    beta: float,
    steps: int,
    proximity: float,
) -> Tensors:
    """Steps on the objective + (lambda / 2) |y - start|^2, from the start."""
    fixed = [leaf.detach() for leaf in start]
    y = [leaf.clone().requires_grad_() for leaf in fixed]
    for _ in range(steps):
        slopes = torch.autograd.grad(objective(y), y)
        with torch.no_grad():
            for leaf, slope, anchor in zip(y, slopes, fixed, strict=True):
                leaf -= beta * (slope + proximity * (leaf - anchor))
    return y


def _conjugate_gradients(
    kept: Any, y: Tensors, left: Tensors, proximity: float, budget: int
) -> Tensors:
    """(H + lambda)^-1 left, H the derivative of the kept gradient: at most `budget` products, up to
    the first direction without positive curvature."""
    solution = [torch.zeros_like(leaf) for leaf in left]
    direction, size = left, _dot(left, left)
    for _ in range(budget):
        found = torch.autograd.grad(kept, y, grad_outputs=direction, retain_graph=True)
        image = [h + proximity * leaf for h, leaf in zip(found, direction, strict=True)]
        products.append(1)
        curvature = _dot(direction, image)
        if curvature <= 0:
            break
        length = size / curvature
        solution = [a + length * b for a, b in zip(solution, direction, strict=True)]
        left = [a - length * b for a, b in zip(left, image, strict=True)]
        new = _dot(left, left)
        direction = [a + new / size * b for a, b in zip(left, direction, strict=True)]
        size = new
    return solution


def _dot(left: Tensors, right: Tensors) -> torch.Tensor:
    return sum((torch.sum(a * b) for a, b in zip(left, right, strict=True)), torch.zeros(()))
