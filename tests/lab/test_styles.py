"""The same colour for a method in every figure, seeds as they are, and readable numbers."""

import math

import numpy as np
import pandas as pd
import pytest

from obax._support.messages import counted
from obax.lab import EXPERIMENTS, find
from obax.lab.framework.results import Figure, Series
from obax.lab.framework.statistics import mean_over_seeds, plus_minus
from obax.lab.report import figures


def light(colour):
    """Relative luminance, as contrasts are counted."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_are_visible_by_day_and_by_night():
    assert contrast("#000000", figures.PAPERS[1]) < 1.5 and contrast("#ffff00", "#ffffff") < 1.5
    for colour in {*figures.COLOURS, *figures.KINDS.values(), *(c for _, c in figures.WINDOWS)}:
        assert all(contrast(colour, paper) >= 3 for paper in figures.PAPERS), colour


def test_a_method_has_the_same_colour_in_every_figure():
    (alone,) = figures.styles([("OAGD", 10)])
    curves = [("OGD", None), ("class 3", None), ("AutoBalance", None), ("OAGD", 10), ("OAGD", 1)]
    among = figures.styles(curves)
    assert among[3] == alone and len({colour for colour, _ in among}) == 5
    first, second = figures.styles([("OAGD", 10), ("OAGD", 10)])
    assert first == alone and second[0] == alone[0] and second[1] != alone[1]


def test_all_methods_of_an_experiment_can_be_told_apart():
    for name in EXPERIMENTS:
        config = find(name).presets["paper"]
        runs = config.runs().values() if hasattr(config, "runs") else []
        for method in runs:
            assert figures.colour_of(method.kind), f"{method.kind} has no colour"
        curves = [(method.kind, method.w) for method in runs]
        assert len(set(figures.styles(curves))) == len(curves)
    many = figures.styles([(f"class {i}", None) for i in range(40)])
    assert len(set(many)) == 40


def curves(seeds, rounds=3):
    value = [[10.0**-t * (1 + seed) for t in range(rounds)] for seed in range(seeds)]
    return pd.DataFrame(
        [
            {"t": t, "seed": seed, "value": value[seed][t]}
            for seed in range(seeds)
            for t in range(rounds)
        ]
    )


@pytest.mark.parametrize(
    ("values", "few"), [((0.11, 0.8), {"0.2", "0.6"}), ((1e-4, 1e3), {"0.001", "100"})]
)
def test_numbers_of_a_logarithmic_axis_are_plain(values, few):
    figure = Figure("a", "a", "x", "y", [Series("a", [1, 2], values)], "", log_y=True)
    axis = figures.draw(figure).axes[0].yaxis
    shown = {label.get_text() for label in [*axis.get_ticklabels(), *axis.get_ticklabels(True)]}
    assert few <= shown and not any("$" in text for text in shown), shown


def test_few_seeds_are_drawn_as_they_are_and_many_as_quantiles():
    few, many, one = (mean_over_seeds(curves(seeds), "a") for seeds in (3, 20, 1))
    assert np.shape(few.seeds) == (3, 3) and few.low is None
    np.testing.assert_allclose(few.seeds[2], [3.0, 0.3, 0.03])
    assert few.mean[0] == 2.0
    assert len(many.seeds) == 0 and len(one.seeds) == 0 and one.low is None
    # Quantiles never leave the range of the seeds, as mean - deviation would.
    assert min(many.low) > 0 and curves(20).value.mean() - curves(20).value.std() < 0
    np.testing.assert_allclose(many.low[0], np.quantile(np.arange(1, 21), 0.1))


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out():
    series = mean_over_seeds(curves(2).assign(value=-1.0), "a")
    (line, *_) = figures.draw(Figure("f", "F", "x", "y", [series], "c", log_y=True)).axes[0].lines
    assert np.isnan(line.get_ydata()).all()


@pytest.mark.parametrize(("mean", "half"), [(200.9, 156.0), (0.012, 0.3), (1e5, 7.0), (2.5, 2e-4)])
def test_value_and_uncertainty_have_the_same_decimals(mean, half):
    value, uncertainty = plus_minus(mean, half).split(" ± ")
    assert len(value.partition(".")[2]) == len(uncertainty.partition(".")[2])
    assert "e" not in value + uncertainty


def test_values_that_are_not_finite_are_words():
    assert plus_minus(math.nan, 1.0) == "not run" and plus_minus(math.inf, math.nan) == "diverged"
    assert counted(1, "seed") == "1 seed" and counted(0, "seed") == "0 seeds"
