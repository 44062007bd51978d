"""What a compiled round sends between devices, read from its program."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import obax
from obax.online.mesh import Axes, on_mesh

KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
LINE = re.compile(rf"= (?P<result>.*?) (?:{KINDS})(?:-start)?\(")
ARRAY = re.compile(r"(pred|[a-z]+\d+)\[([\d,]*)\]")
# A Hessian-vector product is the derivative of a gradient, in the loop of the solver.
IN_SOLVER = "while/body/jvp(transpose("
STEPS = 5


class Messages(NamedTuple):
    """The collectives of one round: how many, with how many bytes for each device, all told and in
    one step of the solver; and the floating-point operations of a device."""

    window: int
    devices: int
    count: int
    bytes: int
    count_in_loop: int
    bytes_in_loop: int
    flops_per_term: float
    flops_of_rest: float

    def seconds(
        self, window: int, devices: int, flops: float, bandwidth: float, latency: float
    ) -> tuple[float, float]:
        """Work and messages of a round, if each sum takes 2 log2(N) messages' time and sends every
        byte twice, as a ring does."""
        work = (self.flops_per_term * window / devices + self.flops_of_rest) / flops
        if devices == 1:
            return work, 0.0
        sums = self.count + (STEPS - 1) * self.count_in_loop
        sent = self.bytes + (STEPS - 1) * self.bytes_in_loop
        return work, sums * 2 * math.log2(devices) * latency + 2 * sent / bandwidth


def parsed(text: str) -> list[tuple[int, bool]]:
    """Bytes of each collective of a program, and whether it is in the loop of the solver."""
    found = []
    for line in text.splitlines():
        if match := LINE.search(line):
            arrays = ARRAY.findall(match["result"])
            found.append((sum(map(_bytes, arrays)), IN_SOLVER in line))
    return found


def of_round(
    algorithm: obax.Algorithm,
    start: tuple,
    example: Any,
    axis: str,
    window: int,
    devices: int,
) -> Messages:
    """What a round of an algorithm sends over one axis of so many devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), (axis,))
    where = (axis, None) if axis == "window" else (None, axis)
    axes = Axes.of(mesh, *where)
    assert axes is not None
    state = algorithm.init(*start, example)
    placed, there = on_mesh(algorithm, state, axes)
    round = axes.put_rounds(example, state.round_spec, stacked=False)
    compiled = jax.jit(lambda *given: placed.step(*given)).lower(there, round).compile()
    lines = parsed(compiled.as_text())
    inside = [size for size, in_solver in lines if in_solver]
    # XLA counts the body of a loop once.
    total = compiled.cost_analysis()["flops"]
    term = _flops_of_term(algorithm.problem, start, example) if axis == "window" else 0.0
    rest = max(0.0, total - term * window / devices)
    sizes = [size for size, _ in lines]
    counts = len(sizes), sum(sizes), len(inside), sum(inside)
    return Messages(window, devices, *counts, term, rest)


def _flops_of_term(problem: obax.Problem, start: Sequence[Any], example: Any) -> float:
    gradient = jax.jit(jax.grad(problem.outer_loss, argnums=(0, 1)))
    return gradient.lower(*start, example, None).compile().cost_analysis()["flops"]


def _bytes(array: tuple[str, str]) -> int:
    kind, shape = array
    bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
    return math.prod(int(size) for size in shape.split(",") if size) * bits // 8
