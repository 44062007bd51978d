"""Loss tuning in plain PyTorch, as the paper's released research code plays a round.

One SGD step of the classifier on each batch of the window, oldest first; then for each batch of the
window the gradient of the balanced validation loss, a Neumann series with the curvature of that
batch's training loss on a graph that is kept, and the cross derivative; an SGD step of the leader
along the weighted average. Momentum and weight decay on both levels. Written anew from the
description in READING_NOTES 12; the classifiers are those of `obax.models`.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from obax import models

Batch = tuple[torch.Tensor, torch.Tensor]


class Settings(NamedTuple):
    """The numbers of a round, shared with obax."""

    outer_step_size: float
    inner_step_size: float
    decay: float = 0.9
    terms: int = 5
    neumann_step: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 1e-4


def classifier(model: Any, *, released: bool = False) -> nn.Module:
    """The same network, with the same weights. `released`: with the blocks of the released code,
    where BatchNorm comes last and has a quarter of the work, twice so in second derivatives."""
    if isinstance(model, models.MLP):
        hidden, head = model.features.hidden, model.head
        return nn.Sequential(
            _linear(hidden), nn.ReLU(), nn.Dropout(model.features.dropout), _linear(head)
        )
    layers: list[nn.Module] = []
    for block in model.features.blocks:
        kernel = _tensor(block.kernel).permute(3, 2, 0, 1).contiguous()
        filters, channels = kernel.shape[:2]
        convolution = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
        convolution.weight = nn.Parameter(kernel)
        norm = nn.BatchNorm2d(filters, momentum=block.batch_norm_momentum)
        pool = nn.MaxPool2d(2)
        layers += [convolution, *((nn.ReLU(), pool, norm) if released else (norm, nn.ReLU(), pool))]
    if model.head.weight.shape[0] != model.features.blocks[-1].kernel.shape[-1]:
        raise ValueError("the blocks must leave one pixel: NCHW would flatten in another order.")
    return nn.Sequential(*layers, nn.Flatten(), _linear(model.head))


def batch(round: Any, part: str) -> Batch:
    """The training or validation batch of a round of obax; images become NCHW."""
    inputs, labels = (_tensor(leaf) for leaf in round[part])
    if inputs.ndim == 4:
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    return inputs, labels.long()


class LossTuning:
    """OAGD, or OGD with `window` 0, on the parametric cross-entropy with sigmoid(gamma)."""

    def __init__(
        self, model: Any, classes: int, window: int, settings: Settings, *, released: bool = False
    ):
        self.network = classifier(model, released=released).train()
        self.parameters = list(self.network.parameters())
        self.gamma = torch.ones(classes, requires_grad=True)
        self.delta = torch.zeros(classes, requires_grad=True)
        self.leader = [self.gamma, self.delta]
        self.settings, self.size = settings, window
        self.window: list[tuple[Batch, Batch, torch.Tensor]] = []
        options = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
        self.inner = torch.optim.SGD(self.parameters, settings.inner_step_size, **options)
        self.outer = torch.optim.SGD(self.leader, settings.outer_step_size, **options)

    def remember(self, round: Any) -> None:
        """Put a round into the window, the newest last."""
        weights = _tensor(round["class_weights"])
        self.window.append((batch(round, "train"), batch(round, "valid"), weights))
        self.window = self.window[-max(self.size, 1) :]

    def step(self) -> torch.Tensor:
        """Play a round on the batches in the window; the leader's decision after it."""
        for train, _, _ in self.window:
            self.inner.zero_grad()
            self.inner_loss(train).backward()
            self.inner.step()
        if self.size:
            shares = [self.settings.decay**age for age in range(len(self.window))][::-1]
            total = [torch.zeros_like(leaf) for leaf in self.leader]
            for share, term in zip(shares, self.window, strict=True):
                for leaf, part in zip(total, self._hypergradient(*term), strict=True):
                    leaf += share / sum(shares) * part
            for leaf, slope in zip(self.leader, total, strict=True):
                leaf.grad = slope
            self.outer.step()
        return torch.cat(self.leader).detach()

    def inner_loss(self, train: Batch) -> torch.Tensor:
        """The parametric cross-entropy."""
        inputs, labels = train
        logits = torch.sigmoid(self.gamma) * self.network(inputs) + self.delta
        return functional.cross_entropy(logits, labels)

    def _hypergradient(
        self, train: Batch, valid: Batch, weights: torch.Tensor
    ) -> list[torch.Tensor]:
        inputs, labels = valid
        losses = functional.cross_entropy(self.network(inputs), labels, reduction="none")
        target = torch.autograd.grad((weights[labels] * losses).mean(), self.parameters)
        slope = torch.autograd.grad(self.inner_loss(train), self.parameters, create_graph=True)
        term, total = list(target), list(target)
        eta = self.settings.neumann_step
        for _ in range(self.settings.terms - 1):
            products = torch.autograd.grad(slope, self.parameters, term, retain_graph=True)
            term = [a - eta * b for a, b in zip(term, products, strict=True)]
            total = [a + b for a, b in zip(total, term, strict=True)]
        cross = torch.autograd.grad(slope, self.leader, [eta * leaf for leaf in total])
        return [-leaf for leaf in cross]


def _linear(linear: Any) -> nn.Linear:
    layer = nn.Linear(*linear.weight.shape)
    layer.weight = nn.Parameter(_tensor(linear.weight).T.contiguous())
    layer.bias = nn.Parameter(_tensor(linear.bias))
    return layer


def _tensor(leaf: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(leaf))
