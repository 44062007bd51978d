"""What the tables of the loss-tuning experiments say: claims C3, C4, C5, C7. Reads tables only."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from ..kit.statistics import interval
from ..report import Claim, Findings, Table
from . import figures
from .config import Config, Method

FINAL = 0.95
"""Final accuracies are means over the measurements after this share of the rounds."""
CLOSE = 0.02
"""How near two balanced accuracies must be to count as the same."""
FALL = 2.0
"""How many points of accuracy must be lost within the span for a fall."""
FLAT = 0.05
"""How far apart the accuracies over a range of step sizes may be to count as flat."""

Claims = Callable[[Config, pd.DataFrame], list[Claim]]


def findings(claims: Claims, config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows."""
    rows = columns(config, table)
    summary = _summary(rows)
    return Findings(
        claims=claims(config, rows),
        figures=figures.all_figures(config, rows),
        tables=[
            Table(
                "classes",
                "Accuracy of each class on the test rows",
                "Mean over seeds of the final accuracies, in per cent.",
                _classes(rows),
            ),
            Table(
                "leader",
                "Where the leader ended",
                "Mean over seeds of gamma_j and Delta_j after the last round.",
                _leader(rows),
            ),
        ],
        paragraphs=_explanation(config, rows),
        summary=Table(
            "summary",
            "Balanced accuracy and time",
            f"Balanced accuracy in per cent, mean over the measurements after "
            f"{FINAL:.0%} of the rounds, then mean ± standard deviation over seeds; seconds of "
            "all steps without compilation, data and evaluation.",
            summary,
        ),
    )


def columns(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns for what the labels say, and the methods' names for people."""
    names = {method.label(): method.short() for method in config.parsed_methods()}
    settings = {
        label: dict(item.split("=", 1) for item in label.split("; "))
        for label in table.setting.unique()
    }
    return table.assign(
        name=table.method.map(names),
        data=table.setting.map(lambda label: settings[label]["data"]),
        alpha=table.setting.map(lambda label: float(settings[label]["alpha"])),
        beta=table.setting.map(lambda label: float(settings[label]["beta"])),
    )


RUN = ["name", "alpha", "beta", "seed"]


def final(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The metric at the end of each run."""
    kept = rows[(rows.metric == metric) & (rows.t > FINAL * rows.t.max())]
    return kept.groupby(RUN, sort=False).value.mean().reset_index()


def seconds(rows: pd.DataFrame) -> pd.DataFrame:
    """Seconds of all steps of each run."""
    return rows[rows.metric == "seconds"].groupby(RUN, sort=False).value.max().reset_index()


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    test, train, time = final(rows, "test_accuracy"), final(rows, "train_accuracy"), seconds(rows)
    merged = test.merge(train, on=RUN, suffixes=("", "_train")).merge(
        time, on=RUN, suffixes=("", "_seconds")
    )
    return pd.DataFrame(
        {
            "method": name,
            "alpha": f"{alpha:g}",
            "beta": f"{beta:g}",
            "test": _mean(100 * runs.value),
            "training": _mean(100 * runs.value_train),
            "seconds": _mean(runs.value_seconds, digits=3),
            "seeds": len(runs),
        }
        for (name, alpha, beta), runs in merged.groupby(RUN[:3], sort=False)
    )


def _mean(values: pd.Series, digits: int = 0) -> str:
    spread = values.std() if len(values) > 1 else 0.0
    if digits:
        return f"{values.mean():.{digits}g} ± {spread:.2g}"
    return f"{values.mean():.1f} ± {spread:.1f}"


def _classes(rows: pd.DataFrame) -> pd.DataFrame:
    kept = rows[rows.metric.str.startswith("test_class_") & (rows.t > FINAL * rows.t.max())]
    kept = kept.assign(label=kept.metric.str.removeprefix("test_class_").astype(int))
    wide = kept.pivot_table(
        index=["name", "alpha", "beta"], columns="label", values="value", sort=False
    )
    wide = (100 * wide).round(1).reset_index()
    wide.columns = [f"class {c}" if isinstance(c, int) else str(c) for c in wide.columns]
    return wide.rename(columns={"name": "method"})


def _leader(rows: pd.DataFrame) -> pd.DataFrame:
    kept = rows[rows.metric.str.match(r"(gamma|delta)_\d+") & (rows.t == rows.t.max())]
    parts = kept.metric.str.extract(r"(gamma|delta)_(\d+)")
    kept = kept.assign(part=parts[0], label=parts[1].astype(int))
    wide = kept.pivot_table(
        index=["name", "alpha", "beta", "part"], columns="label", values="value", sort=False
    )
    wide = wide.round(3).reset_index()
    wide.columns = [f"class {c}" if isinstance(c, int) else str(c) for c in wide.columns]
    return wide.rename(columns={"name": "method"})


def _explanation(config: Config, rows: pd.DataFrame) -> list[str]:
    data = rows.data.iloc[0]
    images = config.data.startswith("mnist")
    network = (
        f"a CNN of {config.blocks} blocks with {config.filters} filters on "
        f"{28 // config.downsample} x {28 // config.downsample} pixels"
        if images
        else f"a 2-layer MLP with {config.hidden} hidden units and dropout {config.dropout:g}"
    )
    size = ""
    if images:
        papers = (config.blocks, config.filters, config.downsample) == (4, 64, 1)
        size = " (the paper's)" if papers else " (the paper's: 4 blocks, 64 filters, 28 x 28)"
    rejected = int(
        rows[rows.metric == "rejected"].groupby(["method", "setting", "seed"]).value.max().sum()
    )
    found = [
        f"Data: {data}. The follower is {network}{size}; batches of {config.batch}; "
        f"{config.rounds} rounds; the leader moves from round {config.outer_start} on"
        + (f", every {config.outer_every} rounds" if config.outer_every > 1 else "")
        + ". OAGD's follower makes one pass over the window's batches, oldest first, so a larger "
        "window also means more training in each round; OGD takes one step a round.",
        f"Step sizes warm up over {config.inner_warmup} (inner) and {config.outer_warmup} (outer) "
        f"rounds and are divided by ten after {_shares(config)} of the rounds. Momentum "
        f"{config.momentum:g}, weight decay {config.weight_decay:g}; the hypergradient is a "
        f"Neumann series of {config.neumann_terms} terms with step {config.neumann_step:g} unless "
        f"a method says CG.",
    ]
    if "(synthetic)" in data:
        found.insert(0, "The data is synthetic: these figures say nothing about the real data set.")
    if rejected:
        found.append(f"The guard rejected {rejected} rounds in all.")
    return found


def _shares(config: Config) -> str:
    return " and ".join(f"{share:.0%}" for share in config.step_decays) or "none"


# Claims. Each compares methods on the seeds that both have.


def _value(values: pd.DataFrame, name: str) -> pd.Series:
    """The values of a method at its first pair of step sizes, by seed."""
    kept = values[values["name"] == name]
    first = kept.iloc[0]
    kept = kept[(kept.alpha == first.alpha) & (kept.beta == first.beta)]
    return kept.set_index("seed").value


def _names(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(rows["name"]))


def _oagd(config: Config, **wanted: object) -> list[Method]:
    """OAGD with its leader on, Neumann, and what is wanted, by window."""
    wanted = {"held": False, "solver": "neumann", **wanted}
    kept = [
        method
        for method in config.parsed_methods()
        if method.kind == "oagd" and all(getattr(method, k) == v for k, v in wanted.items())
    ]
    return sorted(kept, key=lambda method: method.window)


def _better(one: pd.Series, other: pd.Series) -> tuple[float, str]:
    """Mean of the paired differences, and in words with their 95% t-interval."""
    seeds = one.index.intersection(other.index)
    gain = 100 * (one[seeds] - other[seeds]).to_numpy()
    if len(gain) < 2 or np.ptp(gain) == 0:
        return float(gain.mean()), f"{gain.mean():+.1f} points ({len(gain)} seed)"
    mean, half = interval(gain)
    return mean, f"{mean:+.1f} ± {half:.1f} points"


def _verdict(held: Sequence[bool]) -> str:
    return "reproduced" if all(held) else "partly" if any(held) else "not reproduced"


def _setting(config: Config, rows: pd.DataFrame) -> str:
    size = f"{config.hidden} hidden units"
    if config.data.startswith("mnist"):
        pixels = 28 // config.downsample
        size = f"{config.blocks} x {config.filters} filters, {pixels} x {pixels} pixels"
    return (
        f"{rows.data.iloc[0]}, {size}, {config.rounds} rounds, {config.seeds} seeds "
        f"(AutoBalance {min(config.seeds, config.autobalance_seeds)}), leader from round "
        f"{config.outer_start}"
    )


def time_claim(id: str, config: Config, rows: pd.DataFrame) -> list[Claim]:
    """OGD < OAGD < AutoBalance in seconds."""
    names, spent = _names(rows), seconds(rows)
    mean = {name: float(_value(spent, name).mean()) for name in names}
    ours = [method.short() for method in _oagd(config)]
    held = [mean["OGD"] < mean[name] for name in ours if "OGD" in mean]
    held += [mean[name] < mean["AutoBalance"] for name in ours if "AutoBalance" in mean]
    if not held:
        return []
    return [
        Claim(
            f"{id} (time)",
            "runtime OGD < OAGD(w) < AutoBalance",
            "; ".join(f"{name} {value:.3g} s" for name, value in mean.items()),
            _verdict(held),
            _setting(config, rows),
        )
    ]


def against_autobalance(config: Config, rows: pd.DataFrame, *, overtake: bool) -> list[Claim]:
    """C3: OAGD with w = 5, 10 overtakes AutoBalance; C5: comes out the same, in less time."""
    if "AutoBalance" not in _names(rows):
        return []
    accuracy, spent = final(rows, "test_accuracy"), seconds(rows)
    theirs, their_time = _value(accuracy, "AutoBalance"), _value(spent, "AutoBalance")
    held, words = [], [f"AutoBalance {100 * theirs.mean():.1f}"]
    for method in _oagd(config):
        if method.window == 1 and len(_oagd(config)) > 1:
            continue
        ours = _value(accuracy, method.short())
        gain, said = _better(ours, theirs)
        ratio = their_time.mean() / _value(spent, method.short()).mean()
        held.append(gain > 0 if overtake else gain >= -100 * CLOSE and ratio > 1)
        words.append(f"{method.short()} {100 * ours.mean():.1f} ({said}, {ratio:.2g} x as fast)")
    claimed = (
        "OAGD w = 5, 10 overtake AutoBalance in balanced test accuracy"
        if overtake
        else "OAGD has the same balanced test accuracy as AutoBalance, in less time"
    )
    id = "C3 (accuracy)" if overtake else "C5"
    return [Claim(id, claimed, "; ".join(words), _verdict(held), _setting(config, rows))]


def window_claim(id: str, config: Config, rows: pd.DataFrame) -> list[Claim]:
    """A larger window is better, and slower."""
    accuracy, spent = final(rows, "test_accuracy"), seconds(rows)
    found: list[Claim] = []
    for curvature, note in (("own", ""), ("current", ", one solve")):
        ladder = _oagd(config, curvature=curvature, decay=0.9)
        if len(ladder) < 2:
            continue
        held, slower = [], []
        words = [f"{m.short()} {100 * _value(accuracy, m.short()).mean():.1f}" for m in ladder]
        for small, large in itertools.pairwise(ladder):
            gain, said = _better(_value(accuracy, large.short()), _value(accuracy, small.short()))
            held.append(gain > 0)
            words.append(f"w={large.window} over w={small.window}: {said}")
            slower.append(_value(spent, large.short()).mean() > _value(spent, small.short()).mean())
        found.append(
            Claim(
                f"{id} (window{note})",
                "the larger the window, the better the accuracy and the longer the runtime",
                "; ".join(words) + ("; slower each time" if all(slower) else "; not always slower"),
                _verdict([*held, *slower]) if any(held) else "not reproduced",
                _setting(config, rows),
            )
        )
    return found


def _curve(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Test accuracy in per cent, rounds by seeds."""
    kept = rows[(rows.metric == "test_accuracy") & (rows["name"] == name)]
    return 100 * kept.pivot_table(index="t", columns="seed", values="value")


def _drop(curve: pd.DataFrame, at: int, span: int) -> pd.Series:
    """For each seed, how far the accuracy falls within `span` rounds of round `at`."""
    before = curve[(curve.index <= at) & (curve.index > at - span)].mean()
    after = curve[(curve.index > at) & (curve.index <= at + span)].min()
    return before - after


def shift_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C4, in its three parts."""
    found = []
    change = 2 * config.phase_rounds
    span = max(3 * config.evaluate_every, config.phase_rounds // 5)
    ours = [method.short() for method in _oagd(config)]
    if "AutoBalance" in _names(rows) and config.rounds > change + span:
        theirs = _drop(_curve(rows, "AutoBalance"), change, span).mean()
        drops = {name: _drop(_curve(rows, name), change, span).mean() for name in ours}
        found.append(
            Claim(
                "C4 (shift)",
                f"AutoBalance falls at round {change}, OAGD stays",
                f"fall of the test accuracy within {span} rounds of round {change}: AutoBalance "
                f"{theirs:.1f} points; "
                + "; ".join(f"{name} {value:.1f}" for name, value in drops.items()),
                "not reproduced"
                if theirs <= FALL
                else _verdict([True, all(value <= FALL for value in drops.values())]),
                _setting(config, rows),
            )
        )
    for curvature, note in (("own", ""), ("current", ", one solve")):
        largest = max((m.window for m in _oagd(config, curvature=curvature)), default=1)
        ladder = [m for m in _oagd(config, curvature=curvature) if m.window == largest]
        ladder.sort(key=lambda method: -method.decay)
        if len(ladder) < 2 or largest == 1 or config.rounds <= config.phase_rounds:
            continue
        later = {}
        for m in ladder:
            curve = _curve(rows, m.short())
            later[m] = curve[curve.index > max(config.outer_start, config.phase_rounds)].mean()
        gain, said = _better(later[ladder[-1]] / 100, later[ladder[0]] / 100)
        listed = "; ".join(f"δ = {m.decay:g}: {later[m].mean():.1f}" for m in ladder)
        found.append(
            Claim(
                f"C4 (decay{note})",
                "with a large window a small δ adapts better",
                f"mean test accuracy after the first shift, w = {largest}: {listed}; smallest "
                f"against largest δ: {said}",
                _verdict([gain > 0]),
                _setting(config, rows),
            )
        )
    if ours and config.rounds > config.outer_start + span:
        dips = {n: _drop(_curve(rows, n), config.outer_start, span).mean() for n in ours}
        alone = (
            _drop(_curve(rows, "OGD"), config.outer_start, span).mean()
            if "OGD" in _names(rows)
            else 0.0
        )
        found.append(
            Claim(
                "C4 (dip)",
                "the accuracy dips when the outer level starts",
                f"fall within {span} rounds of round {config.outer_start}: "
                + "; ".join(f"{n} {value:.1f} points" for n, value in dips.items())
                + f"; OGD, which has no outer level, {alone:.1f}",
                _verdict([value > max(1.0, alone + 0.5) for value in dips.values()]),
                _setting(config, rows),
            )
        )
    return found


def step_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C7: flat in alpha or beta."""
    found = []
    accuracy = final(rows, "test_accuracy")
    for name, of_method in accuracy.groupby("name", sort=False):
        for symbol in ("alpha", "beta"):
            means = 100 * of_method.groupby(symbol).value.mean()
            if len(means) < 2:
                continue
            spread = means.max() - means.min()
            listed = "; ".join(f"{step:g}: {value:.1f}" for step, value in means.items())
            found.append(
                Claim(
                    f"C7 ({symbol})",
                    f"OAGD is not sensitive to {symbol}",
                    f"{name}, final balanced test accuracy by {symbol}: {listed}; range "
                    f"{spread:.1f} points (flat: at most {100 * FLAT:.0f})",
                    _verdict([spread <= 100 * FLAT]),
                    _setting(config, rows),
                )
            )
    return found


def leader_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """Ours, not the paper's: what the leader is worth, against the same method with it held."""
    accuracy = final(rows, "test_accuracy")
    held = [method for method in config.parsed_methods() if method.held]
    found = []
    for still in held:
        for moving in _oagd(
            config, window=still.window, decay=still.decay, curvature=still.curvature
        ):
            gain, said = _better(_value(accuracy, moving.short()), _value(accuracy, still.short()))
            found.append(
                Claim(
                    f"leader (w = {still.window})",
                    "ours: the leader is worth something against the same method with it held",
                    f"{moving.short()} against {still.short()}: {said}",
                    _verdict([gain > 0]),
                    _setting(config, rows),
                )
            )
    return found
