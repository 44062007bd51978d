"""The loss-tuning experiments: methods, parts, what the tables are read to say."""

import dataclasses
import functools
import importlib
import os

import numpy as np
import pandas as pd
import pytest

from obax import lab
from obax.lab import report
from obax.lab.loss_tuning import config as settings, methods, stream
from obax.lab.loss_tuning.config import Config, Method

# The package's name for its function; here the module is meant.
findings = importlib.import_module("obax.lab.loss_tuning.findings")

TINY = dataclasses.replace(
    settings.TABLES,
    data="adult",
    source="synthetic",
    methods=("ogd", "oagd-w1", "oagd-w3", "oagd-w3-current-cg", "oagd-w3-held", "autobalance"),
    rounds=12,
    seeds=2,
    autobalance_seeds=1,
    batch=16,
    hidden=4,
    outer_start=4,
    outer_step_sizes=(0.01,),
    autobalance_every=3,
    autobalance_rounds=2,
    evaluate_every=4,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "adult"
    return lab.run(lab.find("adult"), TINY, "quick", out)


def test_every_method_leaves_its_rows(finished):
    table = finished.table()
    labels = {method.label() for method in TINY.parsed_methods()}
    assert set(table.method) == labels
    assert set(table[table.method == "AutoBalance"].seed) == {0}
    for (_, seed), run in table.groupby(["method", "seed"]):
        assert seed in (0, 1)
        seconds = run[run.metric == "seconds"].sort_values("t")
        assert list(seconds.t) == list(range(1, 13))
        assert np.all(np.diff(seconds.value) > 0)
        assert set(run[run.metric == "test_accuracy"].t) == {1, 4, 8, 12}
        classes = run[run.metric.str.match(r"test_class_\d")].groupby("t").value.mean()
        balanced = run[run.metric == "test_accuracy"].set_index("t").value
        np.testing.assert_allclose(classes, balanced)
        assert not run[run.metric == "rejected"].value.any()
    assert table.setting.str.contains("(synthetic)", regex=False).all()


def test_the_leader_waits_and_then_moves(finished):
    table = finished.table()
    gamma = table[(table.metric == "gamma_0") & (table.seed == 0)]
    paths = gamma.pivot(index="t", columns="method", values="value")
    assert (paths["OGD"] == 1).all()
    assert (paths.filter(like="held") == 1).all(axis=None)
    # It moves at rounds 4, 6, 8, ...; x_t is recorded after the step.
    ours = paths[Method.parse("oagd-w3").label()]
    assert (ours[:3] == 1).all() and ours[4] != 1 and ours[5] == ours[4] and ours[6] != ours[5]
    assert paths["AutoBalance"][3] == 1 and paths["AutoBalance"][12] != 1


def test_the_same_seed_gives_the_same_numbers(finished):
    """Also what a resumed run rests on: a part does not depend on the others."""
    one = next(part for part in lab.find("adult").parts(TINY) if "seed1-oagd-w3-a" in part.name)
    again = one.work()
    kept = finished.table()
    kept = kept[(kept.method == Method.parse("oagd-w3").label()) & (kept.seed == 1)]
    again, kept = (table[~table.metric.str.endswith("seconds")] for table in (again, kept))
    np.testing.assert_array_equal(again.value.to_numpy(), kept.value.to_numpy())


def test_the_report_says_synthetic(finished):
    found = lab.find("adult").findings(TINY, finished.table())
    assert "synthetic" in found.paragraphs[0]
    assert {claim.id for claim in found.claims} == {"C5", "C5 (time)", "leader (w = 3)"}
    page = report.write(finished.path, finished.info, found)
    assert "Adult-like (synthetic)" in page.read_text()
    assert all(f"{name}" in {figure.name for figure in found.figures} for name in ("time", "test"))


def test_images_through_the_network():
    """The convolutional network with its buffers, and the shift of the classes."""
    config = dataclasses.replace(
        settings.IMAGES,
        data="mnist-shift",
        source="synthetic",
        methods=("oagd-w2-current",),
        rounds=4,
        seeds=1,
        batch=16,
        filters=2,
        blocks=2,
        downsample=4,
        train_images=30,
        valid_images=30,
        phase_rounds=1,
        outer_start=2,
        evaluate_every=4,
    )
    data = stream.stream(config, 0)
    assert data.shape == (7, 7, 1)
    weights = [round["class_weights"] for _, round in zip(range(4), data.rounds(), strict=False)]
    np.testing.assert_allclose(weights[3], 10.0, rtol=1e-5)
    assert weights[0][9] > weights[1][9] > weights[2][9] > 10
    method = Method.parse("oagd-w2-current")
    moments = list(methods.play(config, method, data, 0.001, 0.1))
    assert len(moments) == 4 and moments[-1].rejected == 0
    assert moments[-1].test.shape == (10,)
    assert np.any(moments[-1].delta != 0)


@pytest.mark.skipif("OBAX_DATA" not in os.environ, reason="needs the real data sets")
@pytest.mark.parametrize("name", ["mnist", "adult"])
def test_real_data(name):
    base = settings.IMAGES if name == "mnist" else settings.TABLES
    data = stream.stream(dataclasses.replace(base, data=name), 0)
    assert not data.data.synthetic
    assert data.shape == ((28, 28, 1) if name == "mnist" else (11,))
    assert len(data.test_rows[1]) == (10_000 if name == "mnist" else 4_518)
    round = next(data.rounds())
    assert round["train"][1].shape == (128,)


def test_without_the_files_auto_generates_and_real_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("OBAX_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    auto = dataclasses.replace(settings.TABLES, data="adult", source="auto")
    assert stream.is_synthetic(auto)
    assert stream.is_synthetic(dataclasses.replace(auto, data="tadpole", source="real"))
    monkeypatch.setattr("obax.datasets.registry.fetch", _no_network)
    stream.stream.cache_clear()
    with pytest.raises(lab.UserError, match="source=synthetic"):
        stream.stream(dataclasses.replace(auto, source="real"), 0)


def _no_network(*_, **__):
    raise stream.datasets.DataError("adult.data could not be downloaded.")


def test_rates_warm_up_and_fall():
    rate = methods.Rates(np.float32(1.0), 10, 5, (20, 30))
    value = lambda t: float(rate(np.int32(t)))  # noqa: E731
    assert [round(value(t), 3) for t in (9, 10, 12, 14, 20)] == [0.0, 0.2, 0.6, 1.0, 1.0]
    assert round(value(21), 3) == 0.1 and round(value(31), 4) == 0.01


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("ogd", "OGD"),
        ("OAGD-w10-u0.5-current-cg", "OAGD; w=10; u=0.5; curvature=current; solver=cg"),
        ("oagd-w5-held", "OAGD; w=5; u=0.9; curvature=own; solver=neumann; leader=held"),
    ],
)
def test_methods_are_written_as_words(text, label):
    assert Method.parse(text).label() == label


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("oagd-x5",)}, "methods must be written like"),
        ({"methods": ("ogd-w5",)}, "methods must be written like"),
        ({"methods": ("oagd-w5", "oagd-own-w5")}, "twice"),
        ({"data": "cifar"}, "data must be one of"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"imbalance": 0.0}, "imbalance"),
        ({"downsample": 2}, "blocks must leave a pixel"),
        ({"outer_step_sizes": (-1.0,)}, "outer_step_sizes"),
    ],
)
def test_config_errors(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(Config(), **change)


def _table(curves, data="MNIST", rounds=100):
    """A table with these final test accuracies and seconds for each method, on three seeds."""
    rows = []
    for text, (accuracy, seconds) in curves.items():
        for seed in range(3):
            at = (Method.parse(text).label(), f"data={data}; alpha=0.001; beta=0.1", seed)
            for t in range(10, rounds + 1, 10):
                value = accuracy(t) if callable(accuracy) else accuracy
                rows.append((*at, t, "test_accuracy", value + 0.001 * seed))
                rows.append((*at, t, "seconds", seconds * t / rounds))
    return pd.DataFrame(rows, columns=["method", "setting", "seed", "t", "metric", "value"])


def _claims(config, curves, claims):
    return {c.id: c.verdict for c in claims(config, findings.columns(config, _table(curves)))}


def test_the_verdict_of_c3_follows_the_table():
    config = dataclasses.replace(
        Config(), methods=("ogd", "oagd-w1", "oagd-w5", "autobalance"), rounds=100, seeds=3
    )
    overtake = functools.partial(findings.against_autobalance, overtake=True)
    good = {"ogd": (0.5, 1), "oagd-w1": (0.6, 2), "oagd-w5": (0.9, 5), "autobalance": (0.8, 50)}
    assert _claims(config, good, overtake) == {"C3 (accuracy)": "reproduced"}
    time = functools.partial(findings.time_claim, "C3")
    assert _claims(config, good, time) == {"C3 (time)": "reproduced"}
    window = functools.partial(findings.window_claim, "C3")
    assert _claims(config, good, window) == {"C3 (window)": "reproduced"}
    bad = good | {"oagd-w5": (0.55, 60)}
    assert _claims(config, bad, overtake) == {"C3 (accuracy)": "not reproduced"}
    assert _claims(config, bad, time) == {"C3 (time)": "partly"}
    assert _claims(config, bad, window) == {"C3 (window)": "not reproduced"}


def test_the_verdict_of_c4_follows_the_table():
    config = dataclasses.replace(
        Config(),
        data="mnist-shift",
        methods=("ogd", "oagd-w5-u1", "oagd-w5-u0.5", "autobalance"),
        rounds=100,
        phase_rounds=30,
        outer_start=40,
        seeds=3,
        evaluate_every=10,
    )

    def falls(t):
        return 0.9 if t <= 60 else 0.7

    def dips(t):
        return 0.8 if 40 < t <= 60 else 0.9

    curves = {
        "ogd": (0.6, 1),
        "oagd-w5-u1": (dips, 2),
        "oagd-w5-u0.5": (lambda t: dips(t) + 0.01, 2),
        "autobalance": (falls, 9),
    }
    assert set(_claims(config, curves, findings.shift_claims).values()) == {"reproduced"}
    flat = curves | {"autobalance": (0.9, 9), "oagd-w5-u0.5": (0.8, 2), "oagd-w5-u1": (0.85, 2)}
    verdicts = _claims(config, flat, findings.shift_claims)
    assert verdicts["C4 (decay)"] == verdicts["C4 (dip)"] == "not reproduced"
    assert verdicts["C4 (shift)"] == "not reproduced"


def test_the_verdict_of_c7_follows_the_table():
    config = dataclasses.replace(
        Config(), methods=("oagd-w5",), outer_step_sizes=(0.001, 0.01), rounds=100, seeds=3
    )
    for gap, verdict in ((0.01, "reproduced"), (0.2, "not reproduced")):
        one = _table({"oagd-w5": (0.8, 1)})
        other = _table({"oagd-w5": (0.8 - gap, 1)}).assign(
            setting="data=MNIST; alpha=0.01; beta=0.1"
        )
        rows = findings.columns(config, pd.concat([one, other]))
        assert [c.verdict for c in findings.step_claims(config, rows)] == [verdict]
