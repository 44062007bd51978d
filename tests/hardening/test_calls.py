"""Wrong calls: none taken, none answered by a traceback from elsewhere."""

import jax.numpy as jnp

import obax
from benchmarks.attack.calls import Call, calls


def test_every_wrong_call_is_told_in_words():
    table = calls()
    assert len(table) > 1000
    bad = [f"{call}: {answer}" for call in table if (answer := call.answer())]
    assert not bad, "\n".join(bad)


def test_the_judge_sees_what_is_wrong():
    def unnamed():
        obax.Box(2.0, 1.0)

    for make, words in (
        (lambda: None, "taken"),
        (lambda: jnp.ones(2) @ jnp.ones(3), "raw TypeError"),
        (lambda: [][1], "raw IndexError"),
        (unnamed, "does not name it"),
    ):
        assert Call("x", "no such argument", 1, make).answer().startswith(words)
