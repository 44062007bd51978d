"""Wrong calls: none taken, none answered by a traceback from elsewhere."""

import jax.numpy as jnp
import pytest

import obax
from benchmarks.attack import surface
from benchmarks.attack.calls import HOME, Call, calls
from benchmarks.attack.commands import Command, commands
from obax._support.checks import checked


def test_every_wrong_call_is_told_in_words():
    table = calls()
    assert len(table) > 3500
    bad = [f"{call}: {answer}" for call in table if (answer := call.answer())]
    assert not bad, "\n".join(bad)


def test_every_wrong_command_line_is_told_in_words(tmp_path):
    table = [*commands(tmp_path)]
    assert len(table) > 70
    bad = [answer for line in table if (answer := line.answer())]
    assert not bad, "\n".join(bad)
    assert Command(("list",)).answer()


def test_a_public_name_that_is_new_is_attacked_by_itself(monkeypatch):
    def fresh(size: int, weight: float = 1.0, *, loud: bool = False):
        """Takes anything."""

    fresh.__module__ = "obax.meta"
    monkeypatch.setattr(obax.meta, "fresh", fresh, raising=False)
    found = [call for call in surface.calls() if call.what == "fresh"]
    assert {call.argument for call in found} == {"size", "weight", "loud"}
    # Until somebody says how it is called rightly, and it checks what it is given.
    assert all(call.answer() for call in found)
    monkeypatch.setitem(surface.RIGHT, "fresh", lambda: {"size": 1})
    monkeypatch.setattr(obax.meta, "fresh", checked(fresh))
    assert [call.answer() for call in surface.calls() if call.what == "fresh"] == (
        ["taken"] + [None] * (len(found) - 1)  # -3: a range is for the function to say
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_right_calls_are_taken(tmp_path, monkeypatch):
    # Otherwise a wrong one would prove nothing.
    monkeypatch.chdir(tmp_path)
    for name, thing in surface.things().items():
        if name not in ("certify", "check_algorithm", "load", "save"):  # for long, or a file
            surface._made(thing, surface.RIGHT.get(name, dict)())


def test_every_algorithm_estimator_detector_and_driver_is_among_them():
    names = {call.what for call in surface.calls()}
    kinds = [getattr(obax.algorithms, name) for name in obax.algorithms.__all__]
    algorithms = {one.__name__ for one in kinds if issubclass(one, obax.Algorithm)} - {"Algorithm"}
    assert algorithms <= names and len(algorithms) >= 13
    core = {"Replay", "ScaleChange", "Window", "run", "play", "sweep", "compare", "Pool", "dynamic",
            "DiscountedRidge", "JSONLines", "check_hypergradient", "quadratic"}  # fmt: skip
    assert core <= names


def test_the_judge_sees_what_is_wrong():
    def unnamed():
        obax.Box(2.0, 1.0)

    for make, words in (
        (lambda: None, "taken"),
        (lambda: jnp.ones(2) @ jnp.ones(3), "raw TypeError"),
        (lambda: [][1], "raw IndexError"),
        # One that happens to be raised in code of ours is no better.
        (lambda: exec(compile("None.x", f"{HOME}/here.py", "exec")), "raw AttributeError"),
        (unnamed, "does not name it"),
    ):
        assert Call("x", "no such argument", 1, make).answer().startswith(words)
