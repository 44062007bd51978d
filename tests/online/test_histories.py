"""What a run tells of itself: while it is played, and at its end."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax

pytestmark = pytest.mark.usefixtures("quick_compilation")

PROBLEM = obax.Problem(
    lambda x, y, r: 0.5 * jnp.sum((y - r) ** 2),
    lambda x, y, r: 0.5 * jnp.sum((y - x) ** 2),
    obax.Box(-1.0, 0.5),
)
ALGORITHM = obax.OAGD(PROBLEM, 0.1, 0.5, 2, obax.Window(2, 0.9), obax.hypergradient.CG(5))
STATE = ALGORITHM.init(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
ROUNDS_50 = jnp.asarray(np.random.default_rng(0).normal(1.0, 0.3, (50, 2)))


@pytest.fixture(scope="module")
def whole():
    return obax.run(ALGORITHM, STATE, ROUNDS_50)


def equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


# --- a history ------------------------------------------------------------------------------------


def test_a_history_is_a_sequence_of_rounds(whole):
    _, history = whole
    assert len(history) == 50 and len(history[10:]) == 40
    assert int(history[10:][0].t) == 11 == int(history[10].t)
    assert [int(info.t) for info in history[-2:]] == [49, 50]
    assert history
    for index in (50, -51):
        with pytest.raises(IndexError, match="of a history of 50"):
            history[index]
    for use in (len, lambda info: info[0], lambda info: info.summary(), lambda info: info.plot()):
        with pytest.raises(TypeError, match="the record of one round"):
            use(history[0])


def test_a_history_as_a_table(whole):
    _, history = whole
    table = history.to_pandas()
    assert list(table.index) == list(range(1, 51)) and table.index.name == "round"
    np.testing.assert_array_equal(table["played_value"], history.played_value)
    np.testing.assert_array_equal(table["x[1]"], history.outer_var[:, 1])
    assert table["accepted"].all() and table["at_edge"].max() == 2


def test_the_summary_says_what_happened(whole):
    _, history = whole
    text = history.summary()
    assert text.startswith("50 rounds, none rejected\nloss suffered: ")
    assert "largest relative residual" in text and "never above 0.1" in text
    assert "follower: |grad_y g|" in text
    # By hand: the rounds in which a coordinate of x is at 0.5.
    touched = int(np.sum(np.any(np.asarray(history.outer_var) >= 0.5, axis=1)))
    assert 0 < touched < 50
    assert f"at an edge of its domain in {touched} of 50 rounds; in the last, 2 of 2" in text


def test_one_round_is_in_the_singular(whole):
    _, history = whole
    text = history[:1].summary()
    assert text.startswith("1 round, none rejected\n") and "in 0 of 1 round" not in text
    assert "in the first round, " in text and "1 rounds" not in text and "2 round " not in text
    assert repr(history[:1]).startswith("Info(1 round, ")
    assert repr(history[:2]).startswith("Info(2 rounds, ")
    assert "in the first 5 rounds, " in history.summary() and " in the last 5" in history.summary()


def test_the_summary_of_what_went_wrong(whole):
    _, history = whole
    rough = np.asarray(history.solver_residual).copy()
    rough[:7] = 0.5
    bad = np.ones(50, bool)
    bad[:3] = False
    import equinox as eqx

    mended = eqx.tree_at(lambda h: (h.solver_residual, h.accepted), history, (rough, bad))
    text = mended.summary()
    assert text.startswith("50 rounds, 3 rejected")
    assert "largest relative residual 0.5, above 0.1 in 4 of 47 rounds" in text
    nothing = eqx.tree_at(lambda h: h.accepted, history, np.zeros(50, bool))
    assert nothing.summary() == "50 rounds, 50 rejected: nothing was learned."


def test_the_summary_leaves_out_domain_and_follower_where_there_are_none():
    problem = obax.Problem(lambda x, y, r: 0.5 * jnp.sum((x - r) ** 2))
    algorithm = obax.OGD(problem, 0.1)
    start = algorithm.init(jnp.zeros(2), None, jnp.zeros(2))
    _, history = obax.run(algorithm, start, ROUNDS_50)
    assert history.at_edge is None
    assert len(history.summary().splitlines()) == 2


def test_the_figure_has_four_panels(whole, tmp_path):
    _, history = whole
    figure = history.plot(tmp_path / "h.png")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["loss suffered", "x", "residual of the solver", "|grad_y g| after learning"]
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    leader = figure.axes[1].lines
    assert len(leader) == 2
    np.testing.assert_allclose(leader[1].get_ydata(), history.outer_var[:, 1])
    _, several = obax.sweep([ALGORITHM, ALGORITHM], STATE, ROUNDS_50)
    assert len(several.plot().axes[0].lines) == 2
    assert several.summary().startswith("50 rounds in each of 2 runs, none rejected")
    assert several.to_pandas().loc[(1, 50), "t"] == 50
    np.testing.assert_array_equal(several[1].at_edge, history.at_edge)


def test_reprs(whole):
    state, history = whole
    assert repr(ALGORITHM) == "OAGD(alpha=0.1, beta=0.5, K=2, window=2 x 0.9, CG(5))"
    assert repr(PROBLEM.domain) == "Box(lower=-1.0, upper=0.5)"
    known = obax.problems.quadratic(horizon=3).problem
    for problem in (PROBLEM, known):
        assert " at 0x" not in repr(problem) and "Unconstrained" not in repr(problem)
    assert repr(known).startswith("Problem(outer=_outer, inner=_inner, domain=Box(lower=-2.0")
    assert repr(obax.Box(np.arange(3.0), 9.0 + np.arange(3.0)).lower) is not None
    assert f"played_value={float(history.played_value[3]):.4g}" in repr(history[3])
    assert repr(history).startswith("Info(50 rounds, played_value=")
    assert repr(state).startswith("OAGDState(t=51, outer_var=[0.5, 0.5], ")


def test_reprs_of_what_is_traced():
    said = []

    def look(algorithm_numbers, state, round):
        state, info = ALGORITHM.step(state, round)
        said.append((repr(obax.Box(algorithm_numbers, 2.0)), repr(info), repr(state)))
        return state

    jax.eval_shape(look, jnp.zeros(()), STATE, jnp.zeros(2))
    box, info, state = said[0]
    assert box.startswith("Box(lower=float64[], upper=")
    assert "played_value=float64[]" in info and "outer_var=float64[2]" in state


# --- step -----------------------------------------------------------------------------------------


def test_step_is_compiled_once_and_jit_takes_it(whole):
    traced = []

    def outer(x, y, r):
        traced.append(1)
        return PROBLEM.outer(x, y, r)

    algorithm = obax.OAGD(obax.Problem(outer, PROBLEM.inner), 0.1, 0.5)
    state = algorithm.init(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    state, _ = algorithm.step(state, ROUNDS_50[0])
    once = len(traced)
    state, _ = algorithm.step(state, ROUNDS_50[1])
    # Another step size and another object: the same program.
    other = obax.OAGD(algorithm.problem, 0.2, 0.5)
    other.step(state, ROUNDS_50[1])
    assert len(traced) == once
    jitted = jax.jit(algorithm.step)
    again, _ = jitted(state, ROUNDS_50[2])
    np.testing.assert_allclose(
        again.outer_var, algorithm.step(state, ROUNDS_50[2])[0].outer_var, rtol=1e-12
    )
    counted = len(traced)
    jitted(again, ROUNDS_50[3])
    assert len(traced) == counted
    assert hash(algorithm.step) == hash(algorithm.step) and algorithm.step == algorithm.step
    assert algorithm.step != other.step
    many, _ = jax.vmap(algorithm.step, (None, 0))(state, ROUNDS_50[2:4])
    np.testing.assert_allclose(many.outer_var[0], again.outer_var, rtol=1e-12)


# --- pieces: callbacks and checkpoints ------------------------------------------------------------


def test_a_run_in_pieces_is_the_run(whole):
    seen = []
    cut = obax.run(
        ALGORITHM, STATE, ROUNDS_50, every=20, on_round=lambda s, i: seen.append((int(s.t), i))
    )
    equal(cut, whole)
    # The state after the round, the record of the round; and the last, though it is not due.
    assert [(after, int(info.t)) for after, info in seen] == [(21, 20), (41, 40), (51, 50)]
    assert float(seen[0][1].played_value) == float(whole[1].played_value[19])


def test_play_calls_callbacks_like_run(whole):
    seen = []
    rounds = list(np.asarray(ROUNDS_50[:25]))
    told = [seen.append, lambda *_: None]
    for _ in obax.play(ALGORITHM, STATE, rounds, every=10, on_round=lambda s, i: told[0](int(i.t))):
        pass
    assert seen == [10, 20, 25]
    # A loop that is left early tells of its last round, too.
    del seen[:]
    for number, _ in enumerate(
        obax.play(ALGORITHM, STATE, rounds, every=10, on_round=lambda s, i: seen.append(int(i.t)))
    ):
        if number == 11:
            break
    assert seen == [10, 12]


class Stop(Exception):
    pass


@pytest.mark.parametrize("at", [20, 40])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(whole, tmp_path, at):
    def stop(state, info):
        if int(info.t) == at:
            raise Stop

    played = []
    options = {"checkpoint_dir": tmp_path, "checkpoint_every": 20, "keep": 1, "every": 20}
    with pytest.raises(Stop):
        obax.run(ALGORITHM, STATE, ROUNDS_50, on_round=stop, **options)
    tell = lambda s, i: played.append(int(i.t))  # noqa: E731
    equal(obax.run(ALGORITHM, STATE, ROUNDS_50, on_round=tell, **options), whole)
    assert played == [t for t in (20, 40, 50) if t > at]
    # Finished: nothing is played, all of it is there.
    del played[:]
    equal(obax.run(ALGORITHM, STATE, ROUNDS_50, on_round=tell, **options), whole)
    assert played == []
    with pytest.raises(ValueError, match="rounds must be those of the run in checkpoint_dir"):
        obax.run(ALGORITHM, STATE, ROUNDS_50[:30], checkpoint_dir=tmp_path)


def test_the_folder_of_a_play_is_not_that_of_a_run(tmp_path):
    rounds = list(np.asarray(ROUNDS_50[:4]))
    for _ in obax.play(ALGORITHM, STATE, rounds, checkpoint_dir=tmp_path, checkpoint_every=2):
        pass
    with pytest.raises(obax.checkpoint.CheckpointError, match=r"obax\.play keeps none"):
        obax.run(ALGORITHM, STATE, ROUNDS_50, checkpoint_dir=tmp_path)


def test_a_rejected_round_ends_a_run_in_pieces_where_it_came():
    bad = ROUNDS_50.at[25, 0].set(jnp.nan)
    seen = []
    with pytest.raises(obax.RejectedRoundError, match="round 25 ") as error:
        obax.run(ALGORITHM, STATE, bad, on_round=lambda s, i: seen.append(int(i.t)), every=20)
    assert error.value.index == 25 and int(error.value.state.t) == 26 and seen == [20]


COMPLAINTS = [
    (lambda: obax.run(ALGORITHM, STATE, [*ROUNDS_50]), "a list of rounds: use obax.play"),
    (lambda: obax.run(ALGORITHM, STATE, iter(ROUNDS_50)), "of rounds: use obax.play"),
    (lambda: obax.run(ALGORITHM, STATE, (r for r in [1])), "a generator of rounds: use obax.play"),
    (lambda: obax.run(ALGORITHM, STATE, ROUNDS_50, every=3), "every needs on_round"),
    (lambda: obax.run(ALGORITHM, STATE, ROUNDS_50, on_round=3), "on_round must be a function"),
    (
        lambda: obax.run(ALGORITHM, STATE, ROUNDS_50, on_round=print, every=0),
        "every must be an int",
    ),
    (lambda: obax.run(ALGORITHM, STATE, ROUNDS_50, checkpoint_every=3), "needs checkpoint_dir"),
    (
        lambda: obax.play(ALGORITHM, STATE, (r for r in [1]), checkpoint_dir="/nowhere/at/all"),
        "source must be a sequence or have a method seek",
    ),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_progress_ends_with_the_summary(whole, capsys):
    _, history = obax.run(ALGORITHM, STATE, ROUNDS_50, progress=True)
    assert history.summary() in capsys.readouterr().out


# --- callbacks ------------------------------------------------------------------------------------


def play_with(callback):
    return obax.run(ALGORITHM, STATE, ROUNDS_50, every=20, on_round=callback)


def test_lines_of_json(whole, tmp_path):
    lines = obax.callbacks.JSONLines(tmp_path / "deep" / "rounds.jsonl")
    play_with(lines)
    play_with(lines)
    rows = [json.loads(line) for line in lines.path.read_text().splitlines()]
    assert [row["t"] for row in rows] == [20, 40, 50] * 2
    assert rows[0]["played_value"] == float(whole[1].played_value[19])
    assert rows[2]["x[1]"] == 0.5 and rows[2]["accepted"] == 1.0


def test_watch_writes_the_page_of_a_run(tmp_path):
    from obax.serve.page import read as read_page

    watch = obax.callbacks.Watch(tmp_path / "mine", title="my run", seconds=0.0)
    done = []
    play_with([watch, lambda s, i: done.append(read_page(tmp_path / "mine")["done"])])
    assert done == [False] * 3
    page = read_page(tmp_path / "mine")
    assert page["done"] and page["trouble"] is None and page["title"] == "my run"
    assert page["question"] == "What does a round cost, before it is learned?"
    answer = r"Loss suffered \S+ ± \S+ over 3 sampled rounds up to round 50, recently "
    assert re.match(answer, page["answer"])
    loss, leader, *_ = page["charts"]
    assert loss["curves"][0]["x"] == [20, 40, 50] and len(leader["curves"]) == 2
    (tmp_path / "mine" / "watch.json").write_text("{}")
    assert read_page(tmp_path / "mine")["trouble"] is not None


def test_a_mean_of_all_rounds_is_not_called_sampled(tmp_path):
    from obax.serve.page import read as read_page

    obax.run(ALGORITHM, STATE, ROUNDS_50, every=1, on_round=obax.callbacks.Watch(tmp_path))
    answer = read_page(tmp_path)["answer"]
    assert re.match(r"Loss suffered \S+ ± \S+ over 50 rounds, recently", answer)


def test_the_mean_on_the_page_is_over_all_rounds_and_not_over_the_points_of_its_curve(
    whole, tmp_path
):
    import equinox as eqx

    from obax.serve.page import mean_with_interval, read as read_page

    watch = obax.callbacks.Watch(tmp_path, seconds=1e9)
    info, losses = jax.device_get(whole[1][3]), []
    for t in range(1, 2001):
        # Every other point of the curve is dropped: those that are left have a loss of 0.
        losses.append(float(t % 2 == 0))
        change = lambda i: (i.t, i.played_value)  # noqa: E731
        watch(None, eqx.tree_at(change, info, (np.asarray(t), np.asarray(losses[-1]))))
    watch.close()
    page = read_page(tmp_path)
    assert set(page["charts"][0]["curves"][0]["y"]) == {0.0}
    assert page["answer"].startswith(
        f"Loss suffered {mean_with_interval(losses)} over 2,000 rounds"
    )


def test_what_is_watched_does_not_grow(whole, tmp_path):
    from obax.serve.page import read as read_page

    watch = obax.callbacks.Watch(tmp_path, seconds=1e9)
    info = jax.device_get(whole[1][3])
    for _ in range(3000):
        watch(None, info)
    watch.close()
    (loss, *_), _ = (chart["curves"] for chart in read_page(tmp_path)["charts"][:2])
    assert len(loss["x"]) <= 601


def test_long_leaders_are_shown_by_their_norm(whole):
    import equinox as eqx

    info = eqx.tree_at(lambda i: i.outer_var, whole[1][3], {"a": jnp.ones(100)})
    found = obax.callbacks.metrics(info)
    assert found["|x|"] == 10.0 and "x['a'][0]" not in found


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    play_with(obax.callbacks.TensorBoard(tmp_path / "logs"))
    (file,) = (tmp_path / "logs").iterdir()
    assert b"obax/played_value" in file.read_bytes()
    written = []

    class Writer:
        def add_scalar(self, name, value, step):
            written.append((name, step))

        def flush(self):
            written.append("flush")

    play_with(obax.callbacks.TensorBoard(writer=Writer()))
    assert ("obax/x[0]", 40) in written and written[-1] == "flush"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path):
    """Into a file of its own, with nothing but the extra and no setting of MLflow's."""
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    place = f"sqlite:///{tmp_path}/runs.db"
    play_with(obax.callbacks.MLflow("mine", tracking_uri=place, alpha=0.1))
    client = MlflowClient(place)
    found = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert found[0].data.params == {"alpha": "0.1"} and found[0].info.status == "FINISHED"
    written = client.get_metric_history(found[0].info.run_id, "x.1")
    assert [point.step for point in written] == [20, 40, 50]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_to_a_local_folder(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    play_with(obax.callbacks.WandB("mine", dir=str(tmp_path)))
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(run.glob("*.wandb"))


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (obax.callbacks.TensorBoard, "tensorboardX", "tensorboard"),
        (obax.callbacks.MLflow, "mlflow", "mlflow"),
        (obax.callbacks.WandB, "wandb", "wandb"),
    ],
)
def test_a_library_that_is_not_there_is_named_before_the_first_round(
    make, module, extra, monkeypatch
):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf'{module}.* pip install "obax\[{extra}\]"'):
        make()


def test_a_given_writer_needs_no_library(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    obax.callbacks.TensorBoard(writer=object())
    with pytest.raises(ValueError, match="mode must be one of"):
        obax.callbacks.WandB(mode="on-line")


def test_a_round_of_shapes_alone_is_an_error():
    """An example_round may be one, and people try it."""
    shapes, zero = jax.ShapeDtypeStruct((2,), jnp.float32), jnp.zeros(2)
    for use in (
        lambda: ALGORITHM.step(STATE, shapes),
        lambda: obax.check_hypergradient(PROBLEM, zero, zero, shapes),
        lambda: obax.testing.check_problem(PROBLEM, shapes, zero, zero),
    ):
        with pytest.raises(ValueError, match=r"round must hold numbers, but has shapes alone"):
            use()
