"""Tadpole: mild cognitive impairment or Alzheimer's disease, from visits of the ADNI study.

The licence forbids copies. The loader reads your own `TADPOLE_D1_D2.csv`; without one it generates
a table of the same columns, which is marked as synthetic wherever its name is shown.
"""

import csv
from pathlib import Path

import numpy as np

from .._support.checks import NonNegativeInt, checked
from . import registry
from .containers import Array, Tabular, tabular
from .downloads import DataError

FILE = "TADPOLE_D1_D2.csv"
DIAGNOSIS = "DX"
MCI, AD = 0, 1
LABELS = {"MCI": MCI, "Dementia": AD, "AD": AD}
# The paper's 17 columns, with the parameters of the generated table: mean (MCI, AD), deviation
# (MCI, AD), correlation with the severity of the case, and the share of visits without it.
COLUMNS: dict[str, tuple[float, float, float, float, float, float]] = {
    "CDRSB": (1.6, 5.1, 1.0, 2.4, 0.7, 0.02),
    "ADAS11": (10.3, 20.9, 4.6, 8.0, 0.8, 0.02),
    "MMSE": (27.4, 22.2, 2.1, 4.1, -0.7, 0.02),
    "RAVLT_immediate": (34.2, 21.3, 11.0, 8.0, -0.7, 0.04),
    "Hippocampus": (6700.0, 5700.0, 1110.0, 1020.0, -0.5, 0.35),
    "WholeBrain": (1.02e6, 9.7e5, 1.05e5, 1.1e5, -0.4, 0.3),
    "Entorhinal": (3520.0, 2840.0, 720.0, 690.0, -0.5, 0.4),
    "MidTemp": (19700.0, 17300.0, 2800.0, 2950.0, -0.5, 0.4),
    "FDG": (1.22, 1.05, 0.13, 0.14, -0.6, 0.7),
    "AV45": (1.2, 1.38, 0.22, 0.21, 0.4, 0.8),
    "ABETA_UPENNBIOMK9_04_19_17": (890.0, 680.0, 410.0, 310.0, -0.3, 0.8),
    "TAU_UPENNBIOMK9_04_19_17": (285.0, 365.0, 125.0, 145.0, 0.3, 0.8),
    "PTAU_UPENNBIOMK9_04_19_17": (27.5, 36.5, 14.0, 15.5, 0.3, 0.8),
    "APOE4": (0.6, 0.87, 0.66, 0.7, 0.1, 0.0),
    "AGE": (73.1, 74.9, 7.4, 7.7, 0.1, 0.0),
    "ADAS13": (16.6, 31.0, 6.9, 9.6, 0.8, 0.03),
    "Ventricles": (41000.0, 49500.0, 22500.0, 24000.0, 0.3, 0.33),
}
FEATURES = tuple(COLUMNS)
COUNTS = (4044, 2106)


@checked
def tadpole(
    path: str | Path | None = None, *, seed: NonNegativeInt = 0, synthetic: bool | None = None
) -> Tabular:
    """Load Tadpole as in the paper: 17 features, class 0 = MCI, class 1 = AD, half of AD left out.

    The file is `path`, or else `TADPOLE_D1_D2.csv` in `OBAX_DATA` or the cache. If there is none, a
    table of the same columns is generated, with `synthetic=True` and the name "Tadpole
    (synthetic)". `synthetic=True` always generates, `synthetic=False` never does.

    The class of a visit is the diagnosis in its DX column, or the last one if that column has a
    change ("MCI to Dementia"); visits without a diagnosis and normal ones are left out. A
    measurement beyond its range ("<200") counts as the end of the range; an empty one (or -4, the
    code of the study) as missing, and a missing one as the median of the training rows. The split
    is that of `adult`; it and the half of AD that is kept are drawn by `seed`.
    """
    if path is not None and synthetic:
        raise ValueError("path is given and synthetic=True asks for a generated table: give one.")
    if path is None and synthetic is not True:
        path = registry.find(FILE)
        if path is None and synthetic is False:
            raise DataError(
                f"{FILE} is neither in the folder of OBAX_DATA nor in {registry.cache_folder()}. "
                f"Its licence forbids copies: get it from the ADNI study (tadpole.grand-challenge"
                f".org tells how) and put it there, or pass its path."
            )
    values, labels = _generated(seed) if path is None else _read(Path(path))
    rng = np.random.default_rng([seed, 1])
    sick = np.flatnonzero(labels == AD)
    dropped = rng.permutation(sick)[len(sick) // 2 :]
    kept = np.delete(np.arange(len(labels)), dropped)
    return tabular(
        values[kept],
        labels[kept],
        features=FEATURES,
        classes=2,
        name="Tadpole (synthetic)" if path is None else "Tadpole",
        seed=seed,
        synthetic=path is None,
    )


def _read(path: Path) -> tuple[Array, Array]:
    if not path.is_file():
        raise DataError(f"path must be the file {FILE}, but {path} is no file.")
    values, labels = [], []
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if missing := [name for name in (*FEATURES, DIAGNOSIS) if name not in header]:
            raise DataError(
                f"{path} must have the columns of {FILE}, but lacks {', '.join(missing)}."
            )
        places = {name: header.index(name) for name in FEATURES}
        diagnosis = header.index(DIAGNOSIS)
        for row in reader:
            if len(row) != len(header):
                raise DataError(
                    f"line {reader.line_num} of {path} must have {len(header)} values, but has "
                    f"{len(row)}."
                )
            label = LABELS.get(row[diagnosis].strip().rpartition(" to ")[2])
            if label is not None:
                labels.append(label)
                where = f"in line {reader.line_num} of {path}"
                values.append([_number(row[place], f"{n} {where}") for n, place in places.items()])
    counts = np.bincount(np.array(labels, dtype=np.int64), minlength=2)
    if counts.min() < 4:
        raise DataError(
            f"{path} must have visits of both classes, but has {counts[MCI]} of MCI and "
            f"{counts[AD]} of AD in its column {DIAGNOSIS}."
        )
    return np.array(values), np.array(labels)


def _number(text: str, name: str) -> float:
    word = text.strip().lstrip("<>")
    if word in ("", "NA", "NaN", "nan", "-4"):
        return np.nan
    try:
        number = float(word)
    except ValueError:
        number = np.inf
    if not np.isfinite(number):
        raise DataError(f"{name} must be a number or empty, but is {text!r}.")
    return number


def _generated(seed: int) -> tuple[Array, Array]:
    """Draw normal features around the mean of the class, correlated through the severity."""
    rng = np.random.default_rng([seed, 2])
    labels = np.repeat([MCI, AD], COUNTS)
    severity = rng.standard_normal(len(labels))
    values = np.empty((len(labels), len(FEATURES)))
    for j, (mci, ad, mci_spread, ad_spread, loading, lacking) in enumerate(COLUMNS.values()):
        own = rng.standard_normal(len(labels))
        shape = loading * severity + np.sqrt(1 - loading**2) * own
        mean = np.where(labels == AD, ad, mci)
        values[:, j] = mean + np.where(labels == AD, ad_spread, mci_spread) * shape
        values[rng.random(len(labels)) < lacking, j] = np.nan
    scores = {"CDRSB": 18, "ADAS11": 70, "MMSE": 30, "RAVLT_immediate": 75, "ADAS13": 85}
    for name, highest in scores.items():
        j = FEATURES.index(name)
        values[:, j] = np.clip(values[:, j], 0, highest)
    genes = FEATURES.index("APOE4")
    values[:, genes] = np.clip(np.round(values[:, genes]), 0, 2)
    return np.abs(values), labels
