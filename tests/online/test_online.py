"""Drivers: what is the same in all of them bit for bit, what they reject, and how they say so."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import ALGORITHMS, problem_case

import obax
from obax import hypergradient as hg

TARGETS = np.array([1.0, -2.0, 0.5, 3.0, -1.0, 2.0])


def follow(x, y, r):
    return 0.5 * (x - r["target"]) ** 2


PROBLEM = obax.Problem(follow)
ROUNDS = {"target": TARGETS}


def simple(step_size=0.5):
    algorithm = obax.OGD(PROBLEM, outer_step_size=step_size)
    return algorithm, algorithm.init(0.0, None, {"target": jnp.zeros(())})


def as_list(rounds):
    length = len(jax.tree.leaves(rounds)[0])
    return [jax.tree.map(lambda leaf, t=t: leaf[t], rounds) for t in range(length)]


def equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def part(tree, start, stop):
    return jax.tree.map(lambda leaf: leaf[start:stop], tree)


# --- bit for bit, with all of XLA's optimisations -------------------------------------------------

LONG = ["OAGD-warm", "OAGD-Nystrom", "OAGD-follower-window", "OAGD-optax", "OGD"]


@pytest.mark.parametrize("name", LONG)
def test_a_run_in_two_parts_is_one_run_bit_for_bit(name):
    case = problem_case("pytrees")
    algorithm = ALGORITHMS[name].make(case, 1.0)
    state = case.start(algorithm)
    rounds = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf[::-1], leaf]), case.rounds)
    whole, history = obax.run(algorithm, state, rounds)
    # Cut where the window is full and the ring buffer has turned.
    middle, first = obax.run(algorithm, state, part(rounds, 0, 5))
    end, second = obax.run(algorithm, middle, part(rounds, 5, 9))
    equal(end, whole)
    equal(jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second), history)
    equal(obax.run(algorithm, state, rounds), (whole, history))


def test_single_precision_scan_is_the_loop():
    case = problem_case("quadratic")
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), case.rounds)
    problem = obax.Problem(
        lambda x, y, r: 0.5 * jnp.sum((y - r["target"]) ** 2), case.problem.inner
    )
    algorithm = obax.OAGD(problem, 0.1, 0.2, 3, obax.Window(2))
    state = algorithm.init(np.zeros(2, np.float32), np.zeros(3, np.float32), as_list(single)[0])
    end, _ = obax.run(algorithm, state, single)
    for after, _ in obax.play(algorithm, state, as_list(single)):  # noqa: B007
        pass
    assert end.outer_var.dtype == jnp.float32
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), end, after)


# --- tracing --------------------------------------------------------------------------------------


def counted():
    traces = []

    def outer(x, y, r):
        traces.append(1)
        return 0.5 * (y - r["target"]) ** 2 + 0.5 * x**2

    return obax.Problem(outer, lambda x, y, r: 0.5 * (y - x) ** 2), traces


def test_python_numbers_as_a_start_compile_once():
    """`init(0.0, 0.0, ...)` must not give weakly typed leaves, which would be traced again."""
    problem, traces = counted()
    algorithm = obax.OAGD(problem, 0.1, 0.1)
    counts = []
    for _ in obax.play(algorithm, algorithm.init(0.0, 0.0, {"target": 0.0}), as_list(ROUNDS)[:3]):
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2]
    # Another step size, another kind of number: the same computation.
    for size in (0.2, np.float64(0.3), jnp.asarray(0.4), 1):
        other = obax.OAGD(problem, size, 0.1)
        state = other.init(0.0, 0.0, {"target": 0.0})
        before = len(traces)
        next(obax.play(other, state, as_list(ROUNDS)))
        assert len(traces) == before


def test_python_numbers_as_buffers_compile_once():
    traces = []

    def inner(x, y, r, b):
        traces.append(1)
        return 0.5 * (y - x) ** 2, {"mean": 0.9 * b["mean"] + 0.1 * r["target"]}

    problem = obax.Problem(lambda x, y, r, b: 0.5 * (y - b["mean"]) ** 2, inner, has_buffers=True)
    algorithm = obax.OAGD(problem, 0.1, 0.1)
    state = algorithm.init(0.0, 0.0, {"target": 0.0}, buffers={"mean": 0.0})
    counts = [len(traces) for _ in obax.play(algorithm, state, as_list(ROUNDS)[:3])]
    assert counts[0] == counts[1] == counts[2]


def test_run_and_sweep_compile_once():
    problem, traces = counted()
    settings = [obax.OAGD(problem, size, 0.1) for size in (0.1, 0.2)]
    state = settings[0].init(0.0, 0.0, {"target": 0.0})
    obax.run(settings[0], state, ROUNDS)
    obax.sweep(settings, state, ROUNDS)
    before = len(traces)
    obax.run(settings[1], state, ROUNDS)
    obax.sweep([obax.OAGD(problem, size, 0.5) for size in (0.3, 0.4)], state, ROUNDS)
    assert len(traces) == before


# --- sweep ----------------------------------------------------------------------------------------


def mixed(sizes, steps):
    problem, _ = counted()
    return [
        obax.OAGD(problem, size, 0.2, k, obax.Window(2))
        for size, k in zip(sizes, steps, strict=True)
    ]


def test_sweep_over_settings_with_different_numbers_of_steps():
    settings = mixed((0.1, 0.2, 0.3), (1, 4, 2))
    state = settings[0].init(0.0, 0.0, {"target": 0.0})
    ends, history = obax.sweep(settings, state, ROUNDS, record=lambda s: s.inner_var)
    assert history.played_value.shape == (3, 6)
    assert history.recorded.shape == (3, 6)
    for i, algorithm in enumerate(settings):
        end, alone = obax.run(algorithm, state, ROUNDS, record=lambda s: s.inner_var)
        np.testing.assert_allclose(ends.outer_var[i], end.outer_var, rtol=1e-12)
        np.testing.assert_allclose(history.recorded[i], alone.recorded, rtol=1e-12)
        np.testing.assert_allclose(history.played_value[i], alone.played_value, rtol=1e-12)
        np.testing.assert_array_equal(history.gradients[i], alone.gradients)


def test_sweep_over_seeds_only_with_a_start_for_each():
    algorithm, state = simple()
    rounds = {"target": np.stack([TARGETS, -TARGETS, 2 * TARGETS])}
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf, leaf]), state)
    starts = eqx.tree_at(lambda s: s.outer_var, starts, jnp.array([0.0, 1.0, 2.0]))
    ends, history = obax.sweep(algorithm, starts, rounds, seeds=True)
    assert history.played_value.shape == (3, 6)
    for seed in range(3):
        start = jax.tree.map(lambda leaf, i=seed: leaf[i], starts)
        end, alone = obax.run(algorithm, start, {"target": rounds["target"][seed]})
        np.testing.assert_allclose(ends.outer_var[seed], end.outer_var, rtol=1e-12)
        np.testing.assert_allclose(history.played_value[seed], alone.played_value, rtol=1e-12)


def test_sweep_over_weights_and_bounds():
    def make(decay, bound):
        return obax.OAGD(
            obax.Problem(follow, domain=obax.Box(-bound, bound)), 0.5, window=obax.Window(2, decay)
        )

    settings = [make(0.5, 1.0), make(1.0, 0.2)]
    state = settings[0].init(0.0, None, {"target": 0.0})
    ends, _ = obax.sweep(settings, state, ROUNDS)
    for i, algorithm in enumerate(settings):
        end, _ = obax.run(algorithm, state, ROUNDS)
        np.testing.assert_allclose(ends.outer_var[i], end.outer_var, rtol=1e-12)
    assert abs(ends.outer_var[1]) <= 0.2


def test_sweep_of_an_algorithm_without_numbers():
    algorithm = obax.OGD(PROBLEM, outer_step_size=lambda t: 1.0 / t.astype(float))
    state = algorithm.init(0.0, None, {"target": 0.0})
    rounds = {"target": np.stack([TARGETS, -TARGETS])}
    ends, _ = obax.sweep(algorithm, state, rounds, seeds=True)
    end, _ = obax.run(algorithm, state, ROUNDS)
    np.testing.assert_allclose(ends.outer_var, [end.outer_var, -end.outer_var], rtol=1e-12)


def test_a_bad_seed_does_not_end_the_others():
    algorithm, state = simple()
    bad = TARGETS.copy()
    bad[2] = np.inf
    ends, history = obax.sweep(algorithm, state, {"target": np.stack([bad, TARGETS])}, seeds=True)
    assert history.accepted.tolist() == [[True, True, False, True, True, True], [True] * 6]
    without, _ = obax.run(algorithm, state, {"target": np.delete(TARGETS, 2)})
    np.testing.assert_allclose(ends.outer_var[0], without.outer_var, rtol=1e-12)
    end, _ = obax.run(algorithm, state, ROUNDS)
    np.testing.assert_allclose(ends.outer_var[1], end.outer_var, rtol=1e-12)


# --- the guard ------------------------------------------------------------------------------------


def spoiled(index, value):
    targets = TARGETS.copy()
    targets[index] = value
    return {"target": targets}


@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_round_raises_and_says_which(index, value):
    algorithm, state = simple()
    rounds = spoiled(index, value)
    message = rf"round {index} \(counted from 0\) was rejected: round\['target'\] is not finite"
    before = state
    if index:
        before, _ = obax.run(algorithm, state, part(rounds, 0, index))
    with pytest.raises(obax.RejectedRoundError, match=message) as caught:
        obax.run(algorithm, state, rounds)
    assert caught.value.index == index
    equal(caught.value.state, before)
    playing = obax.play(algorithm, state, as_list(rounds))
    for _ in range(index):
        next(playing)
    with pytest.raises(obax.RejectedRoundError, match=message) as caught:
        next(playing)
    assert caught.value.index == index
    np.testing.assert_allclose(caught.value.state.outer_var, before.outer_var, rtol=1e-12)
    assert playing.rejected == 1
    # One can go on from there.
    after, _ = next(playing)
    assert int(after.t) == index + 2


def test_the_index_counts_all_rounds_that_were_given():
    algorithm, state = simple()
    targets = TARGETS.copy()
    targets[[1, 4]] = np.nan
    playing = obax.play(algorithm, state, as_list({"target": targets}))
    indices = []
    while True:
        try:
            next(playing)
        except obax.RejectedRoundError as error:
            indices.append(error.index)
        except StopIteration:
            break
    assert indices == [1, 4]
    assert playing.rejected == 2


def test_a_finite_round_that_would_overflow_raises_and_says_what():
    algorithm = obax.OGD(
        obax.Problem(lambda x, y, r: 0.5 * (r["target"] * x - 1.0) ** 2), outer_step_size=0.5
    )
    state = algorithm.init(1.0, None, {"target": 0.0})
    rounds = {"target": np.array([0.5, 1e200, 0.5])}
    message = "round 1 .*the round itself is finite, but it would make outer_var NaN or Inf"
    with pytest.raises(obax.RejectedRoundError, match=message):
        obax.run(algorithm, state, rounds)
    with pytest.raises(obax.RejectedRoundError, match=message):
        list(obax.play(algorithm, state, as_list(rounds)))
    end, history = obax.run(algorithm, state, rounds, on_rejected="skip")
    assert history.accepted.tolist() == [True, False, True]
    without, _ = obax.run(algorithm, state, {"target": rounds["target"][[0, 2]]})
    equal(end, without)


def test_skipped_rounds_are_counted():
    algorithm, state = simple()
    targets = TARGETS.copy()
    targets[[1, 4]] = np.nan
    rounds = {"target": targets}
    end, history = obax.run(algorithm, state, rounds, on_rejected="skip")
    assert int(history.rejected) == 2
    assert history.accepted.tolist() == [True, False, True, True, False, True]
    playing = obax.play(algorithm, state, as_list(rounds), on_rejected="skip")
    played = list(playing)
    assert (playing.rounds, playing.rejected) == (6, 2)
    np.testing.assert_allclose(played[-1][0].outer_var, end.outer_var, rtol=1e-12)
    without, _ = obax.run(algorithm, state, {"target": np.delete(targets, [1, 4])})
    equal(end, without)


def test_the_error_names_every_leaf_that_is_not_finite():
    problem = obax.Problem(lambda x, y, r: x * r[0]["a"] + x**2 * r[1])
    algorithm = obax.OGD(problem, outer_step_size=0.1)
    state = algorithm.init(0.0, None, ({"a": 0.0}, 0.0))
    rounds = ({"a": np.array([np.nan])}, np.array([np.inf]))
    with pytest.raises(obax.RejectedRoundError, match=r"round\[0\]\['a'\], round\[1\]"):
        obax.run(algorithm, state, rounds)


def test_a_window_is_not_polluted_by_a_rejected_round():
    """Three rounds later the rejected one would still be in the window."""
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: 0.5 * (y - x * r) ** 2)
    for follower in ("current", "window", "each", "average"):
        algorithm = obax.OAGD(problem, 0.05, 0.2, 1, obax.Window(3, follower=follower))
        state = algorithm.init(1.0, 0.0, jnp.zeros(()))
        good = np.array([1.0, 2.0, 0.5, 1.5])
        bad = np.insert(good, 2, np.nan)
        end, _ = obax.run(algorithm, state, bad, on_rejected="skip")
        wanted, _ = obax.run(algorithm, state, good)
        equal(end, wanted)


# --- progress and record --------------------------------------------------------------------------


def test_the_progress_bar_changes_nothing(capsys):
    algorithm, state = simple()
    rounds = {"target": np.sin(np.arange(120.0))}
    end, history = obax.run(algorithm, state, rounds)
    shown, pieces = obax.run(algorithm, state, rounds, progress=True)
    equal(shown, end)
    equal(pieces, history)
    assert "120/120" in capsys.readouterr().out
    played = list(obax.play(algorithm, state, as_list(rounds), progress=True))
    np.testing.assert_allclose(played[-1][0].outer_var, end.outer_var, rtol=1e-12)
    assert "120/120" in capsys.readouterr().out


def test_a_bar_over_a_stream_that_breaks_is_closed(capsys):
    algorithm, state = simple()
    with pytest.raises(obax.RejectedRoundError, match="round 70 "):
        obax.run(
            algorithm, state, {"target": np.where(np.arange(100) == 70, np.nan, 1.0)}, progress=True
        )
    with pytest.raises(obax.RejectedRoundError):
        list(obax.play(algorithm, state, as_list(spoiled(2, np.nan)), progress=True))
    assert "rounds" in capsys.readouterr().out
    # Two live displays at once are an error in rich: the ones above must be gone.
    obax.run(algorithm, state, ROUNDS, progress=True)


def test_record():
    algorithm, state = simple()
    plain, history = obax.run(algorithm, state, ROUNDS)
    assert history.recorded is None
    end, history = obax.run(
        algorithm, state, ROUNDS, record=lambda s: {"x": s.outer_var, "big": jnp.full((9, 9), s.t)}
    )
    equal(end, plain)
    np.testing.assert_array_equal(history.recorded["x"][:-1], history.outer_var[1:])
    np.testing.assert_array_equal(history.recorded["big"][:, 0, 0], np.arange(2, 8))
    assert history.recorded["big"].shape == (6, 9, 9)


def test_play_takes_a_generator_and_is_lazy():
    algorithm, state = simple()
    taken = []

    def source():
        for target in TARGETS:
            taken.append(target)
            yield {"target": np.asarray(target)}

    playing = obax.play(algorithm, state, source())
    assert taken == []
    next(playing)
    assert len(taken) == 1
    assert len(list(playing)) == 5
    with pytest.raises(StopIteration):
        next(playing)


# --- complaints -----------------------------------------------------------------------------------


def played(round):
    algorithm, state = simple()
    return next(obax.play(algorithm, state, [round]))


def run(rounds, **options):
    algorithm, state = simple()
    return obax.run(algorithm, state, rounds, **options)


def swept(algorithms, rounds=ROUNDS, state=None, **options):
    return obax.sweep(algorithms, simple()[1] if state is None else state, rounds, **options)


TRACKING = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)


def unrolled(steps):
    return obax.OAGD(TRACKING, 0.1, 0.1, steps, hypergradient=hg.Unrolled())


TWO = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), simple()[1])
PAIR = obax.OGD(obax.Problem(lambda x, y, r: x * r["a"] * r["b"]), outer_step_size=0.1)
PAIR_STATE = PAIR.init(0.0, None, {"a": 0.0, "b": 0.0})
COMPLAINTS = [
    (lambda: run(ROUNDS, on_rejected="ignore"), "on_rejected must be one of 'raise', 'skip'"),
    (
        lambda: obax.play(*simple(), [], on_rejected=None),
        "on_rejected must be one of 'raise', 'skip', but got None",
    ),
    (
        lambda: played({"target": np.zeros(2)}),
        r"round\['target'\] must be float64\[\] like the example_round.*but is float64\[2\]",
    ),
    (
        lambda: played({"target": np.zeros((), np.float32)}),
        r"round\['target'\] must be float64\[\].*but is float32\[\]",
    ),
    (lambda: played({"other": np.zeros(())}), "round must have the structure of the example_round"),
    (lambda: played(np.zeros(())), "round must have the structure of the example_round"),
    (
        lambda: simple()[0].step(simple()[1], {"target": 1.0}),
        r"round\['target'\] must be an array of dtype float64, but is the Python float 1.0",
    ),
    (
        lambda: run({"target": np.zeros((4, 2))}),
        r"rounds\['target'\] must be float64\[T\].*but is float64\[4, 2\]",
    ),
    (
        lambda: run({"target": np.zeros(())}),
        r"rounds\['target'\] must be float64\[T\].*float64\[\]",
    ),
    (
        lambda: run({"target": np.zeros(4, int)}),
        r"rounds\['target'\] must be float64\[T\].*int64\[4\]",
    ),
    (lambda: run({"target": np.zeros(0)}), "rounds must hold at least one round, but is empty"),
    (
        lambda: obax.run(PAIR, PAIR_STATE, {"a": np.zeros(3), "b": np.zeros(2)}),
        r"rounds must be stacked on axis 0 with one length.*\[2, 3\]",
    ),
    (lambda: swept([]), "algorithms must hold at least one algorithm, but is empty"),
    (
        lambda: swept([simple()[0], obax.OGD(obax.Problem(lambda *_: 0.0), outer_step_size=0.1)]),
        r"algorithms must differ in numbers only, but algorithms\[1\] has another structure",
    ),
    (
        lambda: swept([obax.OGD(PROBLEM, lambda t: 1.0), obax.OGD(PROBLEM, lambda t: 2.0)]),
        r"algorithms\[i\].outer_step_size must be the same or a number in all",
    ),
    (lambda: swept(simple()[0], {"target": np.zeros(0)}), "rounds must hold at least one round"),
    (
        lambda: swept(simple()[0], {"target": np.zeros((2, 0))}, seeds=True),
        "rounds must hold at least one round",
    ),
    (lambda: swept(simple()[0], seeds=True), r"rounds\['target'\] must be float64\[T\]"),
    (
        lambda: swept(simple()[0], {"target": np.zeros((3, 4))}, TWO, seeds=True),
        "state must be one state, or with seeds=True one for each.*holds 2.*length 3",
    ),
    (lambda: swept(simple()[0], ROUNDS, TWO), "state must be one state.*holds 2.*seeds=False"),
    (
        lambda: obax.sweep(
            PAIR, PAIR_STATE, {"a": np.zeros((3, 4)), "b": np.zeros((2, 4))}, seeds=True
        ),
        r"rounds must have one leading length, the number of seeds.*\[2, 3\]",
    ),
    (
        lambda: obax.sweep(
            [unrolled(1), unrolled(2)], unrolled(1).init(0.0, 0.0, 0.0), np.zeros(3)
        ),
        "inner_steps.*Unrolled",
    ),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_state_of_another_algorithm_is_rejected():
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    alone = obax.OAGD(problem, 0.1, 0.1)
    state = alone.init(0.0, 0.0, jnp.zeros(()))
    for other in (
        obax.OAGD(problem, 0.1, 0.1, window=obax.Window(20)),
        obax.OAGD(problem, 0.1, 0.1, hypergradient=obax.hypergradient.CG(warm_start=True)),
        obax.OAGD(problem, outer_optimiser=optax.adam(0.1), inner_step_size=0.1),
    ):
        with pytest.raises(ValueError, match="call init again"):
            obax.run(other, state, jnp.zeros(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outer_step_size": lambda t: -0.1}, "outer_step_size must be a number >= 0.* at t = 1"),
        (
            {"inner_step_size": lambda t: jnp.ones(2)},
            "inner_step_size must be one number.* at t = 1",
        ),
        (
            {"inner_steps": lambda t: 0 * t},
            "inner_steps must be an integer >= 1, but got 0 at t = 1",
        ),
    ],
)
def test_schedules_are_tried_at_the_first_round(arguments, message):
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    given = {"outer_step_size": 0.1, "inner_step_size": 0.1} | arguments
    with pytest.raises(ValueError, match=message):
        obax.OAGD(problem, **given)


def test_leaving_a_loop_stops_the_progress_bar(monkeypatch):
    from rich import progress

    stopped = []
    monkeypatch.setattr(progress.Progress, "stop", lambda bar: stopped.append(bar))
    problem = obax.Problem(lambda x, y, r: (x - r) ** 2)
    algorithm = obax.OGD(problem, 0.1)
    state = algorithm.init(0.0, None, jnp.zeros(()))
    with obax.play(algorithm, state, [jnp.zeros(())] * 3, progress=True) as rounds:
        for _ in rounds:
            break
        assert not stopped
    assert len(stopped) == 1
