"""Wrong calls: none taken, none answered by a traceback from elsewhere."""

import jax.numpy as jnp

import obax
from benchmarks.attack.calls import HOME, Call, calls
from benchmarks.attack.commands import Command, commands


def test_every_wrong_call_is_told_in_words():
    table = calls()
    assert len(table) > 1300
    bad = [f"{call}: {answer}" for call in table if (answer := call.answer())]
    assert not bad, "\n".join(bad)


def test_every_wrong_command_line_is_told_in_words(tmp_path):
    table = [*commands(tmp_path)]
    assert len(table) > 70
    bad = [answer for line in table if (answer := line.answer())]
    assert not bad, "\n".join(bad)
    assert Command(("list",)).answer()


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
