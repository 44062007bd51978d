"""`run` and `play` know what their checkpoints are of: another algorithm, other rounds."""

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import obax
from obax import checkpoint
from obax._support.function_identity import PYTHON, differences, fingerprint
from obax.checkpoint import CheckpointError, Folder

ROUNDS = np.random.default_rng(0).normal(size=(40, 2))
EVERY = 10


def problem(scale=1.0, sign=-1):
    def outer(x, y, round):
        return 0.5 * scale * jnp.sum((y - round) ** 2)

    if sign > 0:
        return obax.Problem(outer=outer, inner=lambda x, y, round: 0.5 * jnp.sum((y + x) ** 2))
    return obax.Problem(outer=outer, inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2))


RIGHT = {"outer_step_size": 0.1, "inner_step_size": 0.2, "window": obax.Window(3)}
PROBLEM = problem()


def algorithm(problem=PROBLEM, **changes):
    return obax.OAGD(problem, **RIGHT | changes)


def go(driver, folder, rounds=ROUNDS, made=None, stop=None, **more):
    """To the end, or until so many rounds were played."""
    made = made or algorithm()
    state = made.init(jnp.zeros(2), jnp.zeros(2), ROUNDS[0])
    options = {"checkpoint_dir": folder, "checkpoint_every": EVERY} | more
    if driver == "run":
        return obax.run(made, state, jnp.asarray(rounds[:stop]), **options)[0]
    with obax.play(made, state, list(rounds[:stop]), **options) as game:
        *_, (state, _) = [(state, None), *game]
    return state


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder of each driver, stopped half way."""
    folders = {driver: tmp_path_factory.mktemp(driver) for driver in ("run", "play")}
    for driver, folder in folders.items():
        go(driver, folder, stop=20)
    return folders


OTHERS = {
    "step size": ({"outer_step_size": 0.3}, r"outer_step_size \(0\.1 in float64 before, 0\.3"),
    "schedule": ({"outer_step_size": lambda t: 0.1 / t.astype(float)}, "outer_step_size"),
    "window": ({"window": obax.Window(3, decay=0.5)}, r"window\.weights"),
    "longer window": ({"window": obax.Window(5)}, r"window\.size \(3 before, 5 now\)"),
    "estimator": (
        {"hypergradient": obax.hypergradient.Dense()},
        r"hypergradient .*CG before",
    ),
    "its steps": ({"hypergradient": obax.hypergradient.CG(max_steps=2)}, r"hypergradient\.max_ste"),
    "optimiser": ({"outer_optimiser": optax.adam(0.1)}, "outer_optimiser"),
    "closure": ({"problem": problem(2.0)}, r"problem\.outer.*scale \(1\.0 before, 2\.0 now\)"),
    "code": ({"problem": problem(sign=1)}, r"problem\.inner.* \(other code\)"),
}


@pytest.mark.parametrize("driver", ["run", "play"])
@pytest.mark.parametrize("what", OTHERS)
def test_another_algorithm_is_refused_and_named(begun, driver, what):
    changes, words = OTHERS[what]
    with pytest.raises(CheckpointError, match=rf"algorithm must be that of the run .*{words}"):
        go(driver, begun[driver], made=algorithm(**changes))


def changed(place):
    rounds = ROUNDS.copy()
    rounds[place] += 1.0
    return rounds


ROUNDS_OF_OTHERS = {
    "replaced": (ROUNDS + 1.0, "rounds 12 to 19"),
    "first changed": (changed(0), "the first 8 rounds"),
    "last changed": (changed(19), "rounds 12 to 19"),
    "rotated": (np.roll(ROUNDS, 1, axis=0), "rounds 12"),
    "shorter": (ROUNDS[:15], "fewer than the 20 that"),
}


@pytest.mark.parametrize("driver", ["run", "play"])
@pytest.mark.parametrize("what", ROUNDS_OF_OTHERS)
def test_other_rounds_are_refused_and_told(begun, driver, what):
    rounds, words = ROUNDS_OF_OTHERS[what]
    name = {"run": "rounds", "play": "source"}[driver]
    with pytest.raises(CheckpointError, match=rf"{name} must be (that|those) of the run .*{words}"):
        go(driver, begun[driver], rounds)


@pytest.mark.parametrize("driver", ["run", "play"])
def test_the_same_goes_on_and_so_does_another_on_a_word(tmp_path, driver):
    whole = go(driver, tmp_path / "whole")
    go(driver, tmp_path / "a", stop=20)
    # Built again, of rounds that are still to come nothing is known.
    end = go(driver, tmp_path / "a", made=algorithm(problem()))
    np.testing.assert_array_equal(end.outer_var, whole.outer_var)
    go(driver, tmp_path / "b", stop=20)
    other = go(driver, tmp_path / "b", changed(3), made=algorithm(outer_step_size=0.3),
               stop=30, other_input=True)  # fmt: skip
    assert not np.array_equal(other.outer_var, whole.outer_var)
    # From then on it is the other one that goes on without a word.
    go(driver, tmp_path / "b", changed(3), made=algorithm(outer_step_size=0.3))
    with pytest.raises(CheckpointError, match="outer_step_size"):
        go(driver, tmp_path / "b")


def test_what_is_recorded_belongs_to_a_run(tmp_path):
    go("run", tmp_path, stop=20, record=lambda s: s.inner_var)
    with pytest.raises(CheckpointError, match=r"record must be that of the run .*other code"):
        go("run", tmp_path, record=lambda s: -s.inner_var)
    go("run", tmp_path, record=lambda s: s.inner_var)


def test_checkpoints_closer_than_the_ends_that_are_kept(tmp_path):
    """Tails reach back beyond a resumption."""
    for stop in (5, 9, 10, 21, 40):
        go("play", tmp_path, stop=stop, checkpoint_every=3)
    meta = checkpoint.read_meta(Folder(tmp_path).files()[-1])
    assert meta["round"] == 39
    dtypes = [np.float64]
    digests = checkpoint.stacked_digests(ROUNDS, dtypes)
    assert meta["input"]["head"] == digests(0, 8) and meta["input"]["tail"] == digests(31, 39)
    assert digests(0, 1) == [checkpoint.digest(jnp.asarray(ROUNDS[0]), dtypes)]


def test_a_short_run_that_was_saved_often_goes_on(tmp_path):
    """Each checkpoint has the tail of its own rounds, not of those before it too."""
    go("run", tmp_path, stop=7, checkpoint_every=3)
    meta = checkpoint.read_meta(Folder(tmp_path).files()[-1])
    assert meta["input"]["tail"] == checkpoint.stacked_digests(ROUNDS, [np.float64])(0, 7)
    go("run", tmp_path, checkpoint_every=3)


def test_a_source_that_forgets_is_told_of(begun):
    class Forgetful:
        def __init__(self):
            self.at = 0

        def seek(self, round):
            if round < 10:
                raise LookupError("expired")
            self.at = round

        def __iter__(self):
            return iter(ROUNDS[self.at :])

    made = algorithm()
    state = made.init(jnp.zeros(2), jnp.zeros(2), ROUNDS[0])
    with pytest.raises(CheckpointError, match=r"cannot be read again from round 0 .*other_input"):
        obax.play(made, state, Forgetful(), checkpoint_dir=begun["play"])
    game = obax.play(made, state, Forgetful(), checkpoint_dir=begun["play"], other_input=True)
    assert game.rounds == 20
    game.close()


@pytest.mark.parametrize("driver", ["run", "play"])
def test_checkpoints_of_the_version_before_load_with_a_note(tmp_path, driver):
    whole = go(driver, tmp_path / "whole")
    folder = tmp_path / "old"
    go(driver, folder, stop=20)
    for file in Folder(folder).files():
        meta = checkpoint.read_meta(file)
        made = algorithm()
        like = made.init(jnp.zeros(2), jnp.zeros(2), ROUNDS[0])
        state = obax.load(file, like=like)
        del meta["input"]
        obax.save(file, state, meta=meta)
    with pytest.warns(UserWarning, match="took no fingerprints: .* cannot be checked") as told:
        end = go(driver, folder)
    assert told[0].filename == __file__
    np.testing.assert_array_equal(end.outer_var, whole.outer_var)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(driver, folder)


@pytest.mark.parametrize("odd", [3, {}, {"parts": 3}, {"parts": {"algorithm": {"": 3}}},
                                 {"parts": {}, "head": [], "tail": "x"}])  # fmt: skip
def test_fingerprints_that_somebody_made_up(tmp_path, odd):
    go("play", tmp_path, stop=20)
    file = Folder(tmp_path).files()[-1]
    made = algorithm()
    state = obax.load(file, like=made.init(jnp.zeros(2), jnp.zeros(2), ROUNDS[0]))
    obax.save(file, state, meta=checkpoint.read_meta(file) | {"input": odd})
    with pytest.raises(CheckpointError, match="not of obax"):
        go("play", tmp_path)
    # Without a number of rounds it is passed over for the one before.
    obax.save(file, state, meta={"round": "many"})
    go("play", tmp_path)


SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:]
import jax
jax.config.update("jax_enable_x64", True)
from test_resume import rich
from obax._support.function_identity import fingerprint
print(json.dumps(fingerprint(rich())))
"""


class Loss:
    """A loss that can be called."""

    def __init__(self, weight, names):
        self.weight, self.names = weight, names

    def __call__(self, x, y, round):
        return self.weight * jnp.sum((y - round) ** 2)


FACTOR = 2.0


def used(x):
    return FACTOR * x


def rich(weight=1.0, names=("b", "a")):
    """Something of every kind that a fingerprint knows."""
    words = frozenset(names)
    return obax.OAGD(
        obax.Problem(
            outer=Loss(jnp.ones(3) * weight, set(names)),
            inner=lambda x, y, round: used(jnp.sum((y - x) ** 2)) * (len(words) in {2, 3, 5}),
            domain=obax.Box(-1.0, 1.0),
        ),
        outer_step_size=optax.exponential_decay(0.1, 100, 0.9),
        inner_optimiser=optax.chain(optax.clip(1.0), optax.adam(jax.jit(lambda t: 0.1))),
        inner_step_size=1.0,
        window=obax.Window(4, decay=0.9),
        hypergradient=obax.hypergradient.Neumann(3, 0.1),
    )


def test_a_fingerprint_is_the_same_in_every_process():
    """Whatever the order in which sets are gone through there."""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", SCRIPT, here], capture_output=True, text=True,
                          env={**os.environ, "PYTHONHASHSEED": "7"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    now = fingerprint(rich())
    assert json.loads(done.stdout) == now
    assert len(now) > 40 and not any(" at 0x" in one for one in now.values())


def test_mutants_of_everything_a_fingerprint_sees(monkeypatch):
    before = fingerprint(rich())
    assert not differences(before, fingerprint(rich()))
    assert differences(before, fingerprint(rich(weight=2.0)))
    assert differences(before, fingerprint(rich(names=("a", "c"))))
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert differences(before, fingerprint(rich())) == [
        "problem.inner/used/FACTOR (2.0 before, 3.0 now)"
    ]
    monkeypatch.undo()
    monkeypatch.setattr(Loss, "__call__", lambda self, x, y, round: jnp.sum(y))
    assert any("__call__() (other code)" in one for one in differences(before, fingerprint(rich())))
    monkeypatch.undo()
    # Another version of Python writes other code: what else there is is still compared.
    older = {place: "code 0" if one.startswith("code ") else one for place, one in before.items()}
    older[PYTHON] = "3.0"
    assert not differences(older, before)
    assert differences(older | {"": "another kind"}, before)


def test_where_a_function_stands_and_what_it_says_of_itself_do_not_matter():
    def one(x):
        """Once."""
        return x + 1

    def other(x):
        """Twice."""

        return x + 1

    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(lambda x: x + 2)


@dataclasses.dataclass
class Ring:
    """Something that holds itself."""

    me: object = None


def test_what_goes_in_circles_comes_to_an_end():
    ring = Ring()
    ring.me = ring
    assert fingerprint(ring)[".me"] == "as the whole"
