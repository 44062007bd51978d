"""Data sets in tables: Adult and Tadpole, and two streams in time order, Elec2 and the weather."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._support.checks import NonNegativeInt, checked
from . import registry
from .containers import Array, Tabular, tabular
from .registry import DataError

if TYPE_CHECKING:
    import pandas as pd

ADULT_HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)
ADULT_COLUMNS = ADULT_HEADER.split(",")
ADULT_NUMBERS = ["age", "fnlwgt", "hours-per-week"]
ADULT_DROPPED = ["education-num", "capital-gain", "capital-loss", "income"]
ADULT_CLASSES = {"<=50K": 0, ">50K": 1}
TADPOLE_FILE = "TADPOLE_D1_D2.csv"
DIAGNOSIS = "DX"
MCI, AD = 0, 1
TADPOLE_CLASSES = {"MCI": MCI, "Dementia": AD, "AD": AD}
VISITS = (4044, 2106)
"""The visits of each class in the generated table."""
WEATHER_HEADER = ",".join([f"feat_{i}" for i in range(1, 9)] + ["target"])


@checked
def adult(*, seed: NonNegativeInt = 0, verify: bool = True) -> Tabular:
    """Load UCI Adult as in the paper: 45,175 rows of 11 features; class 1 earns over 50K.

    The rows are those of both files, without rows that have a "?" and without exact duplicates;
    education-num, capital-gain and capital-loss are left out, and categories become integers in
    sorted order. A tenth is for the test, the rest is halved for training and validation (20,328,
    20,329 and 4,518 rows), stratified and drawn by `seed`. Features are standardised by the
    training rows.
    """
    import pandas as pd

    paths = registry.fetch("adult", verify=verify).values()
    rows = pd.concat([adult_rows(path) for path in paths])
    rows = rows[~(rows == "?").any(axis=1)].drop_duplicates()
    if rows.empty:
        raise DataError(f"{', '.join(map(str, paths))} have no row without '?'.")
    labels = rows.income.map(ADULT_CLASSES).to_numpy()
    rows = rows.drop(columns=ADULT_DROPPED)
    columns = [
        values.astype(np.float64) if name in ADULT_NUMBERS else np.unique(values, False, True)[1]
        for name, values in rows.items()
    ]
    values = np.stack(columns, axis=1).astype(np.float64)
    return tabular(values, labels, features=tuple(rows.columns), classes=2, name="Adult", seed=seed)


def adult_rows(path: Path) -> pd.DataFrame:
    """Return the rows of a file as words, without the dot after labels of the test."""
    # adult.test begins with a comment; both files end with an empty line.
    rows = _read_csv(path, header=None, names=ADULT_COLUMNS, comment="|", skipinitialspace=True)
    rows["income"] = rows.income.str.removesuffix(".")
    wrong = {
        f"{len(ADULT_COLUMNS)} values, the last <=50K or >50K": ~rows.income.isin(ADULT_CLASSES),
        f"whole numbers for {', '.join(ADULT_NUMBERS)}": ~rows[ADULT_NUMBERS]
        .apply(lambda column: column.str.isdigit())
        .all(axis=1),
    }
    for expected, is_wrong in wrong.items():
        if is_wrong.any():
            row = ", ".join(rows[is_wrong].iloc[0].astype(str))
            raise DataError(f"every line of {path} must have {expected}, but one is {row[:80]!r}.")
    return rows


@checked
def tadpole(
    path: str | Path | None = None, *, seed: NonNegativeInt = 0, synthetic: bool | None = None
) -> Tabular:
    """Load Tadpole as in the paper: 17 features, class 0 = MCI, class 1 = AD, half of AD left out.

    These are visits of the ADNI study, whose licence forbids copies. The file is `path`, or else
    `TADPOLE_D1_D2.csv` in `OBAX_DATA` or the cache. If there is none, a table of the same columns
    is generated, with `synthetic=True` and the name "Tadpole (synthetic)". `synthetic=True` always
    generates, `synthetic=False` never does.

    The class of a visit is the diagnosis in its DX column, or the last one if that column has a
    change ("MCI to Dementia"); visits without a diagnosis and normal ones are left out. A
    measurement beyond its range ("<200") counts as the end of the range; an empty one (or -4, the
    code of the study) as missing, and a missing one as the median of the training rows. The split
    is that of `adult`; it and the half of AD that is kept are drawn by `seed`.
    """
    if path is not None and synthetic:
        raise ValueError("path is given and synthetic=True asks for a generated table: give one.")
    if path is None and synthetic is not True:
        path = registry.find(TADPOLE_FILE)
        if path is None and synthetic is False:
            raise DataError(
                f"{TADPOLE_FILE} is neither in the folder of OBAX_DATA nor in "
                f"{registry.cache_folder()}. Its licence forbids copies: get it from the ADNI "
                f"study (tadpole.grand-challenge.org tells how) and put it there, or pass its path."
            )
    columns = tadpole_columns()
    values, labels = (
        _generated(columns, seed) if path is None else _read_tadpole(Path(path), columns.index)
    )
    rng = np.random.default_rng([seed, 1])
    sick = np.flatnonzero(labels == AD)
    kept = np.delete(np.arange(len(labels)), rng.permutation(sick)[len(sick) // 2 :])
    return tabular(
        values[kept],
        labels[kept],
        features=tuple(columns.index),
        classes=2,
        name="Tadpole (synthetic)" if path is None else "Tadpole",
        seed=seed,
        synthetic=path is None,
    )


def tadpole_columns() -> pd.DataFrame:
    """Return the paper's 17 columns, with the parameters of the generated table."""
    import pandas as pd

    path = Path(__file__).with_name("tadpole_columns.csv")
    return pd.read_csv(path, index_col="name", dtype={"name": str}).astype(np.float64)


def _read_tadpole(path: Path, features: pd.Index) -> tuple[Array, Array]:
    import pandas as pd

    if not path.is_file():
        raise DataError(f"path must be the file {TADPOLE_FILE}, but {path} is no file.")
    table = _read_csv(path, encoding="utf-8-sig", encoding_errors="replace")
    if missing := [name for name in (*features, DIAGNOSIS) if name not in table]:
        raise DataError(
            f"{path} must have the columns of {TADPOLE_FILE}, but lacks {', '.join(missing)}."
        )
    diagnosis = table[DIAGNOSIS].str.strip().str.replace(".* to ", "", regex=True)
    diagnosis = diagnosis.map(TADPOLE_CLASSES)
    table, labels = table[diagnosis.notna()], diagnosis.dropna().to_numpy(np.int64)
    values = np.empty((len(table), len(features)))
    for j, name in enumerate(features):
        words = table[name].str.strip().str.lstrip("<>")
        words = words.mask(words.isin(["", "NA", "NaN", "nan", "-4"]))
        wrong = words.notna() & ~np.isfinite(pd.to_numeric(words, errors="coerce"))
        if wrong.any():
            raise DataError(
                f"{name} in {path} must be a number or empty, but is {words[wrong].iloc[0]!r}."
            )
        values[:, j] = words.to_numpy(object)
    counts = np.bincount(labels, minlength=2)
    if counts.min() < 4:
        raise DataError(
            f"{path} must have visits of both classes, but has {counts[MCI]} of MCI and "
            f"{counts[AD]} of AD in its column {DIAGNOSIS}."
        )
    return values, labels


def _generated(columns: pd.DataFrame, seed: int) -> tuple[Array, Array]:
    """Draw normal features around the mean of the class, correlated through the severity."""
    rng = np.random.default_rng([seed, 2])
    labels = np.repeat([MCI, AD], VISITS)
    severity = rng.standard_normal(len(labels))
    values = np.empty((len(labels), len(columns)))
    for j, (mci, ad, mci_spread, ad_spread, loading, lacking, _) in enumerate(columns.to_numpy()):
        own = rng.standard_normal(len(labels))
        shape = loading * severity + np.sqrt(1 - loading**2) * own
        mean = np.where(labels == AD, ad, mci)
        values[:, j] = mean + np.where(labels == AD, ad_spread, mci_spread) * shape
        values[rng.random(len(labels)) < lacking, j] = np.nan
    genes = columns.index.get_loc("APOE4")
    values[:, genes] = np.round(values[:, genes])
    limited = columns.highest.notna().to_numpy()
    values[:, limited] = np.clip(values[:, limited], 0, columns.highest[limited])
    return np.abs(values), labels


class Series(NamedTuple):
    """Rows in time order: `float32` inputs `[n, d]`, `int32` labels `[n]`, feature names."""

    inputs: Array
    labels: Array
    features: tuple[str, ...]

    def rows(self) -> Iterator[tuple[dict[str, float], int]]:
        """Return each row as ({feature: value}, label), as River takes them."""
        for values, label in zip(self.inputs, self.labels, strict=True):
            yield dict(zip(self.features, values.tolist(), strict=True)), int(label)


def elec2(*, verify: bool = True) -> Series:
    """Load Elec2: 45,312 half-hours of the New South Wales electricity market, 8 features.

    Class 1 means that the price goes up. The drift and the autocorrelation are strong.
    """
    return _series("elec2", registry.ELEC2_HEADER, 45_312, verify)


def weather(*, verify: bool = True) -> Series:
    """Load NOAA weather: 18,159 days at one station, 8 features; class 1 means rain.

    The drift is slow and seasonal.
    """
    return _series("weather", WEATHER_HEADER, 18_159, verify)


def _series(name: str, header: str, rows: int, verify: bool) -> Series:
    (path,) = registry.fetch(name, verify=verify).values()
    table = _read_csv(path)
    first = ",".join(table.columns)
    try:
        if first != header:
            raise ValueError(f"its first line must be {header!r}, but is {first[:100]!r}")
        if verify and len(table) != rows:
            raise ValueError(f"it must have {rows} rows, but has {len(table)}")
        values = table.to_numpy().astype(np.float64)
        if not np.isfinite(values).all() or not np.isin(values[:, -1], (0, 1)).all():
            raise ValueError("its values must be finite numbers and its classes 0 or 1")
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}. Remove it to download it again."
        ) from error
    inputs, labels = values[:, :-1].astype(np.float32), values[:, -1].astype(np.int32)
    return Series(inputs, labels, tuple(header.split(",")[:-1]))


def _read_csv(path: Path, **options: object) -> pd.DataFrame:
    """Return a table of words. An empty field is an empty word, and one that is absent is NaN."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # A row with too many fields.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(  # type: ignore[call-overload]
                path, dtype=str, keep_default_na=False, index_col=False, **options
            )
    except (OSError, EOFError, ValueError, zlib.error, pd.errors.ParserWarning) as error:
        raise DataError(
            f"{path} cannot be read ({error}). Remove it to download it again."
        ) from error
