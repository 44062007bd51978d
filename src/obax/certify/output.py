"""Certificates to look at: tables of plain values for the screen, a figure, a file."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from .._support import files
from .._support.messages import counted
from ..lab.report import Figure, Series, figures
from .certificates import Certificates
from .examination import GROWTH_TOLERANCE, SettingResult
from .measure.growth import ExampleRow
from .mutants import MutantResult
from .streaming.settings import STREAMING
from .verify import POINTS

BOUND = frozenset({"bound"})
RECOMPUTED = frozenset(
    {
        "Algorithm 1, line 8",
        "prediction",
        "loss of the mixture",
        "mean of the members",
        "the update",
        "shares renewed",
    }
)
"""The claims that work out a step or a prediction apart and compare it with the one made."""


def setting_rows(found: Certificates) -> list[dict[str, str]]:
    """Return the table of the settings."""
    return [
        {
            "setting": row.setting,
            "problems": str(row.problems),
            "regret/bound max": f"{row.ratio_max:.2g}",
            "median": f"{row.ratio_median:.2g}",
            "violations": str(row.violations),
            "printed bound": _printed(row),
            "growth": _power(row.exponent),
            "promised": _power(row.promised_exponent),
            "order": row.order,
        }
        for row in found.rows
    ]


def answer(found: Certificates) -> str:
    """Return a sentence that says whether the bounds held."""
    count, nearest = (
        sum(row.problems for row in found.rows),
        max(row.ratio_max for row in found.rows),
    )
    if found.ok:
        return (
            f"Every bound held: on {counted(count, 'problem')} no regret was above it in any "
            f"round, and the nearest came to {nearest:.2f} of it."
        )
    return f"Not every bound held: {counted(len(found.violations), 'violation')}, named below."


def notes(found: Certificates) -> list[str]:
    """Return lines on assumptions and checks, and on the meaning of the columns."""
    lines = [
        "growth: exponent of the mean regret over three doublings of T (T to 8T for "
        "strongly_convex_dynamic, whose steps are small, and streaming_ridge, each T with a memory "
        "of its own) on the family named in certify.json; promised: that of the order, on measured "
        f"path lengths. A growth above promised by more than {GROWTH_TOLERANCE} is a violation."
    ]
    streams = [row for row in found.rows if row.setting in STREAMING]
    if len(streams) < len(found.rows):
        lines.append(
            "Assumed: the constants, closed forms of each family. Checked, in every round at "
            f"{POINTS + 2} points in x, each with two in y:"
        )
        lines += _checked([row for row in found.rows if row not in streams])
    if streams:
        lines += ["Streaming models, the real estimators, row by row. Checked:", *_checked(streams)]
        lines += [f"    assumed: {'; '.join(row.assumptions)}" for row in streams[:2]]
        lines.append(
            "    Losses are those of standardised rows. Not certified: logistic members by "
            "themselves, the tuned member, Huber loss, the squared error of a mixture's mean."
        )
    if found.errata:
        lines.append(
            f"Printed bound: {counted(len(found.errata), 'run')} went above the bound as printed "
            f"in the paper, errata in docs/theory.md; for example {found.errata[0].sentence}."
        )
    return lines


def _checked(rows: Sequence[SettingResult]) -> list[str]:
    lines = []
    for row in rows:
        names = dict.fromkeys(check["assumption"] for check in row.checks)
        lines.append(f"  {row.setting}: {', '.join(names)}")
        tight = max(row.steps, key=lambda step: step["share"])
        lines.append(
            f"    and {counted(len(row.steps), 'step')} of its proof, in every round; nearest to "
            f"its limit: {tight['assumption']}, at {tight['share']:.2f} of it"
        )
    return lines


def mutant_rows(results: Sequence[MutantResult]) -> list[dict[str, str]]:
    """Return a row for each mutant and setting: the claims that failed, or why none could."""
    return [
        {
            "setting": one.setting,
            "mutant": one.mutant,
            "noticed by": "; ".join(one.claims) or f"no claim ({one.exempt or 'it should be'})",
        }
        for one in results
    ]


def mutant_counts(results: Sequence[MutantResult]) -> list[dict[str, str]]:
    """Count, for each setting and in all, the mutants that can be noticed and by which part."""
    settings = list(dict.fromkeys(one.setting for one in results))
    groups = {name: [one for one in results if one.setting == name] for name in settings}
    if len(settings) > 1:
        groups["all"] = list(results)
    rows = []
    for name, own in groups.items():
        claims = [set(one.claims) for one in own if one.exempt is None]
        rows.append(
            {
                "setting": name,
                "mutants": str(len(claims)),
                "noticed": str(sum(map(bool, claims))),
                "by the regret bound": str(sum(bool(one & BOUND) for one in claims)),
                "by nothing else": str(sum(bool(one) and one <= BOUND for one in claims)),
                "by the recomputed step": str(sum(bool(one & RECOMPUTED) for one in claims)),
                "by no other claim": str(sum(bool(one) and one <= RECOMPUTED for one in claims)),
            }
        )
    return rows


def game_rows(found: Certificates) -> list[dict[str, str]]:
    """Return the table of the lower-bound game."""
    return [
        {
            "strategy": row.strategy,
            "mean regret": _between(row.regret, row.regret_interval),
            "mean S_2": _between(row.S_2, row.S_2_interval),
            "regret - S_2, 95%": f"[{row.difference_interval[0]:.5g}, "
            f"{row.difference_interval[1]:.5g}]",
            "holds": "no" if row.violated else "yes",
        }
        for row in found.game
    ]


def example_rows(found: Certificates) -> list[dict[str, str]]:
    """Return the table of the comparability example."""
    return [
        {
            "sequence": row.sequence,
            "quantity": row.quantity,
            "claimed": row.claimed,
            "fitted": _fitted(row),
            "at the end": f"{row.total:.4g}",
            "holds": "no" if row.violated else "yes",
        }
        for row in found.example
    ]


def write(found: Certificates, folder: Path) -> Path:
    """Write `certify.json` and the figure, as PNG and SVG."""
    figures.save(figure(found), folder)
    path = folder / "certify.json"
    files.write_text(path, json.dumps(found.to_dict(), indent=2) + "\n")
    return path


def figure(found: Certificates) -> Figure:
    """Return the figure of the largest regret / bound over problems, round by round, one curve
    per setting."""
    # Of streaming_density the rows before which no other regret is counted are there too.
    rounds = list(range(1, max(len(row.curve) for row in found.rows) + 1))
    curves = [
        # A static regret can be negative: there is nothing to draw then on a logarithmic axis.
        Series(
            row.setting,
            rounds[: len(row.curve)],
            [value if value > 0 else math.nan for value in row.curve],
        )
        for row in found.rows
    ]
    return Figure(
        name="certify",
        title="Measured regret divided by its bound: below 1 the bound holds",
        x_label="round t",
        y_label="regret / bound, the largest over problems",
        series=[*curves, Series("the bound", rounds, [1.0] * len(rounds))],
        caption=f"{sum(row.problems for row in found.rows)} problems, T = {found.horizon}.",
        log_x=True,
        log_y=True,
    )


def _printed(row: SettingResult) -> str:
    if row.printed_violations is None:
        return "-"
    return f"{row.printed_violations} ({row.printed_violations_at_end} at T)"


def _power(exponent: float | None) -> str:
    return "-" if exponent is None else f"T^{exponent:.2f}"


def _between(mean: float, interval: tuple[float, float]) -> str:
    return f"{mean:.5g} ± {0.5 * (interval[1] - interval[0]):.2g}"


def _fitted(row: ExampleRow) -> str:
    if row.exponent is not None:
        return f"T^{row.exponent:.3f}"
    if row.coefficient is not None:
        return f"{row.coefficient:.3f} log T (R² {row.r_squared:.6f})"
    return "0"
