"""One look for each method, seeds as they are, and numbers that can be read."""

import math

import numpy as np
import pandas as pd
import pytest

from obax._support.counting import counted
from obax.lab import EXPERIMENTS
from obax.lab.kit import styles
from obax.lab.kit.curves import band
from obax.lab.kit.numbers import plus_minus
from obax.lab.report import Figure, Series, figures


def light(colour):
    """Relative luminance, as contrasts are counted."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_are_seen_by_day_and_by_night():
    assert contrast("#000000", styles.PAPERS[1]) < 1.5 and contrast("#ffff00", "#ffffff") < 1.5
    for colour in {*styles.CYCLE, *styles.KINDS.values(), *(c for _, c in styles.WINDOWS)}:
        assert all(contrast(colour, paper) >= 3 for paper in styles.PAPERS), colour


def test_a_method_looks_the_same_in_every_company():
    alone = styles.styles(["OAGD, w = 10"])
    among = styles.styles(["OGD", "class 3", "AutoBalance", "OAGD, w = 10", "OAGD, w = 1"])
    assert among[3] == alone[0] and len(set(among)) == 5
    # As another experiment writes it.
    assert styles.styles(["OAGD window"]) == alone
    with_path = styles.styles(["OAGD, w = 10", "OAGD, w = 10, alpha = 0.1"])
    assert with_path[0] == alone[0] and with_path[1].colour == alone[0].colour
    assert with_path[1] != with_path[0]


def test_all_methods_of_an_experiment_can_be_told_apart():
    for experiment in EXPERIMENTS.values():
        config = experiment.presets["paper"]
        runs = getattr(config, "runs", None)
        names = [method.label() for method in runs().values()] if runs else []
        for name in names:
            assert styles.own_style(name), f"{name} has no colour"
        assert len(set(styles.styles(names))) == len(names)
    compared = EXPERIMENTS["compare"].presets["paper"].methods
    assert len({styles.own_style(name) for name in compared}) == len(compared)
    many = styles.styles([f"class {i}" for i in range(40)])
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


def test_ways_to_cut_a_window_differ_in_their_dash():
    """They often lie on each other, where a colour is not seen."""
    cuts = ("never cut", "cut at the true changes", "cut where a detector says")
    found = styles.styles([f"S = {stages}, {cut}" for stages in (3, 1) for cut in cuts])
    assert [style.dash for style in found] == ["solid", "dash", "dot"] * 2
    assert len({style.colour for style in found[:3]}) == 1 != len({one.colour for one in found})


@pytest.mark.parametrize(
    ("values", "few"), [((0.11, 0.8), {"0.2", "0.6"}), ((1e-4, 1e3), {"0.001", "100"})]
)
def test_numbers_of_a_logarithmic_axis_are_plain(values, few):
    figure = Figure("a", "a", "x", "y", [Series("a", [1, 2], values)], "", log_y=True)
    axis = figures.draw(figure).axes[0].yaxis
    shown = {label.get_text() for label in [*axis.get_ticklabels(), *axis.get_ticklabels(True)]}
    assert few <= shown and not any("$" in text for text in shown), shown


def test_few_seeds_are_drawn_as_they_are_and_many_as_quantiles():
    few, many, one = band(curves(3), "a"), band(curves(20), "a"), band(curves(1), "a")
    assert np.shape(few.seeds) == (3, 3) and few.low is None
    np.testing.assert_allclose(few.seeds[2], [3.0, 0.3, 0.03])
    assert few.mean[0] == 2.0
    assert len(many.seeds) == 0 and len(one.seeds) == 0 and one.low is None
    # The band is made of what was seen: it never leaves the domain, as mean - deviation would.
    assert min(many.low) > 0 and curves(20).value.mean() - curves(20).value.std() < 0
    np.testing.assert_allclose(many.low[0], np.quantile(np.arange(1, 21), 0.1))


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out():
    figure = Figure("f", "F", "x", "y", [band(curves(2).assign(value=-1.0), "a")], "c", log_y=True)
    (line, *_) = figures.draw(figure).axes[0].lines
    assert np.isnan(line.get_ydata()).all()


@pytest.mark.parametrize(("mean", "half"), [(200.9, 156.0), (0.012, 0.3), (1e5, 7.0), (2.5, 2e-4)])
def test_value_and_uncertainty_have_the_same_decimals(mean, half):
    value, uncertainty = plus_minus(mean, half).split(" ± ")
    assert len(value.partition(".")[2]) == len(uncertainty.partition(".")[2])
    assert "e" not in value + uncertainty


def test_what_is_no_number_is_a_word():
    assert plus_minus(math.nan, 1.0) == "not run" and plus_minus(math.inf, math.nan) == "diverged"
    assert counted(1, "seed") == "1 seed" and counted(0, "seed") == "0 seeds"
