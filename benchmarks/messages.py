"""What a compiled round sends between devices, read from its program."""

import math
import re
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
# Both loops of a round, the follower's and the solver's, take so many steps here.
IN_LOOP, STEPS = re.compile(r'op_name="[^"]*/while'), 5
# Terms are looked at one by one only where their average is not finite.
IN_BRANCH = re.compile(r'op_name="[^"]*/branch_\d+_fun')


class Messages(NamedTuple):
    """The collectives of one round: how many, with how many bytes for each device, all told and in
    products of one step of the solver, in loops; and the floating-point operations of a device."""

    window: int
    devices: int
    count: int
    bytes: int
    count_in_loop: int
    bytes_in_loop: int
    repeated: int
    bytes_repeated: int
    flops: float

    def seconds(
        self, term: float, window: int, devices: int, flops: float, bandwidth: float, latency: float
    ) -> tuple[float, float]:
        """Work and messages of a round with so many floating-point operations for a term, if a sum
        takes the time of 2 log2(N) messages and sends every byte twice."""
        rest = self.flops - term * self.window / self.devices
        work = (term * window / devices + rest) / flops
        if devices == 1:
            return work, 0.0
        sums = self.count + (STEPS - 1) * self.repeated
        sent = self.bytes + (STEPS - 1) * self.bytes_repeated
        return work, sums * 2 * math.log2(devices) * latency + 2 * sent / bandwidth


def parsed(text: str) -> list[tuple[int, bool, bool]]:
    """Bytes of each collective of a program, whether it is a product in the loop of the solver, and
    whether it is in any loop; without those of rounds in which a term has to be refused."""
    found = []
    for line in text.splitlines():
        if (match := LINE.search(line)) and not IN_BRANCH.search(line):
            arrays = ARRAY.findall(match["result"])
            looped = IN_LOOP.search(line) is not None
            found.append((sum(map(_bytes, arrays)), IN_SOLVER in line, looped))
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
    inside = [size for size, in_solver, _ in lines if in_solver]
    repeated = [size for size, _, looped in lines if looped]
    sizes = [size for size, _, _ in lines]
    # XLA counts the body of a loop once.
    flops = compiled.cost_analysis()["flops"]
    pairs = ((len(some), sum(some)) for some in (sizes, inside, repeated))
    return Messages(window, devices, *(number for pair in pairs for number in pair), flops)


def flops_per_term(few: Messages, many: Messages) -> float:
    """What one term more costs, from two windows on the same devices."""
    return (many.flops - few.flops) * few.devices / (many.window - few.window)


def _bytes(array: tuple[str, str]) -> int:
    kind, shape = array
    bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
    return math.prod(int(size) for size in shape.split(",") if size) * bits // 8
