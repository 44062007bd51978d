"""What the tables look like on a page, and their figure. Both only read what --json wrote."""

from pathlib import Path

from .report import Table, shown

BEGIN, END = "<!-- {} -->", "<!-- end -->"
SHOWN = {
    "ours": ("o", "#b2182b"),
    "untuned": ("x", "#888888"),
    "River default": ("|", "#2166ac"),
    "Vowpal Wabbit": ("v", "#1b7837"),
    "ARF(10)": ("s", "#762a83"),
}


def fill(path: Path, tables: dict[str, Table]) -> None:
    """Put the tables where the page has `<!-- part -->`, in place of what stands there up to
    `<!-- end -->`."""
    text = path.read_text()
    for part, table in tables.items():
        begin = BEGIN.format(part)
        if begin not in text:
            continue
        before, rest = text.split(begin, 1)
        if END not in rest:
            raise ValueError(f"{path} has {begin!r} without {END!r} after it.")
        after = rest.split(END, 1)[1]
        lines = [begin, table.note, "", table.markdown(), END]
        text = before + "\n".join(lines if table.note else [begin, *lines[3:]]) + after
    path.write_text(text)


def figure(path: Path, table: Table) -> None:
    """Losses of each stream as ratios to River's best setting in hindsight."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = list(table.columns)
    played = [row for row in table.rows if row[-1] != "not here"]
    played.sort(key=lambda row: row[columns.index("ours")] / row[columns.index("River's best")])
    drawing, axes = plt.subplots(figsize=(7.5, 0.28 * len(played) + 1.2), layout="constrained")
    for label, (marker, colour) in SHOWN.items():
        places, values = [], []
        for place, row in enumerate(played):
            value = row[columns.index(label)]
            if value is not None:
                places.append(place)
                values.append(min(value / row[columns.index("River's best")], 4.0))
        axes.plot(values, places, marker, color=colour, label=label, markersize=5, linestyle="")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4 or more"])
    axes.minorticks_off()
    axes.set_yticks(range(len(played)), [shown(row[0]) for row in played])
    axes.set_xlabel("loss / that of River's best setting in hindsight")
    axes.invert_yaxis()
    drawing.legend(frameon=False, loc="outside lower center", ncols=len(SHOWN), fontsize=8)
    drawing.savefig(path, dpi=150)
    plt.close(drawing)
