import gzip
import os

import numpy as np
import pytest

from obax import datasets
from obax.datasets import DataError, containers, mnist_data, tables

real_data = pytest.mark.skipif(
    "OBAX_DATA" not in os.environ, reason="OBAX_DATA is not set: no real data"
)


@pytest.fixture
def own(monkeypatch, tmp_path):
    """An empty folder of one's own."""
    monkeypatch.setenv("OBAX_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def digits(**changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (120, 28, 28), np.uint8),
        "y_train": np.repeat(np.arange(10, dtype=np.uint8), 12),
        "x_test": rng.integers(0, 256, (20, 28, 28), np.uint8),
        "y_test": np.repeat(np.arange(10, dtype=np.uint8), 2),
    }
    return {key: array for key, array in (arrays | changes).items() if array is not None}


# MNIST


def test_mnist_from_a_file_of_your_own(own):
    np.savez(own / "mnist.npz", **digits())
    with pytest.raises(DataError, match="SHA-256"):
        datasets.mnist()
    images = datasets.mnist(verify=False)
    assert images.train_inputs.shape == (120, 28, 28)
    assert images.train_inputs.dtype == np.uint8
    assert images.test_labels.dtype == np.int32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "lacks y_test"),
        (
            {"x_train": np.zeros((120, 28, 27), np.uint8)},
            r"x_train .* uint8\[120, 28, 28\], but is",
        ),
        ({"x_train": np.zeros((120, 28, 28))}, r"but is float64\[120, 28, 28\]"),
        ({"y_test": np.full(20, 10, np.uint8)}, "labels 0 to 9, but holds 10"),
        ({"y_train": np.zeros(7, np.uint8)}, "differ in length"),
        ({"y_test": np.array([None] * 20)}, "cannot be read"),
    ],
)
def test_mnist_of_another_form_is_rejected(own, changes, message):
    np.savez(own / "mnist.npz", **digits(**changes))
    with pytest.raises(DataError, match=message):
        datasets.mnist(verify=False)


@pytest.mark.parametrize("damage", ["text", "cut", "npy"])
def test_a_damaged_mnist_is_rejected(own, damage):
    path = own / "mnist.npz"
    np.savez(path, **digits())
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        path.write_bytes({"text": b"no arrays", "cut": path.read_bytes()[:5000]}[damage])
    with pytest.raises(DataError, match="cannot be read"):
        datasets.mnist(verify=False)


@pytest.fixture(scope="module")
def small_images():
    arrays = digits()
    return datasets.Images(
        train_inputs=arrays["x_train"],
        train_labels=arrays["y_train"].astype(np.int32),
        test_inputs=arrays["x_test"],
        test_labels=arrays["y_test"].astype(np.int32),
        classes=10,
        name="small",
    )


def test_imbalance_of_mnist(small_images):
    split = datasets.mnist_imbalanced(small_images, profile=0.8, train=8, valid=4, seed=1)
    assert np.bincount(split.train_labels).tolist() == [8, 6, 5, 4, 3, 3, 2, 2, 1, 1]
    assert np.bincount(split.valid_labels).tolist() == [4, 3, 3, 2, 2, 1, 1, 1, 1, 1]
    assert split.train_inputs.shape[1:] == (28, 28, 1)
    assert split.train_inputs.dtype == np.float32
    assert len(split.test_labels) == 20
    # Pixels are normalised, and no image is in both parts.
    pixels = split.test_inputs[..., 0] * np.float32(0.3081) + np.float32(0.1307)
    np.testing.assert_allclose(pixels * 255, small_images.test_inputs, atol=1e-4)
    seen = {image.tobytes() for image in split.train_inputs}
    assert len(seen) == len(split.train_inputs)
    assert not seen & {image.tobytes() for image in split.valid_inputs}


def test_imbalance_of_mnist_is_drawn_by_the_seed(small_images):
    first, again, other = (
        datasets.mnist_imbalanced(small_images, train=6, valid=3, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.train_inputs, again.train_inputs)
    assert not np.array_equal(first.train_inputs, other.train_inputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": 10, "valid": 5}, r"10 \+ 5 images of class 0, but there are 12"),
        ({"profile": 0.0}, r"profile must be in \(0, 1\]"),
        ({"train": 0}, "train must be an integer >= 1, but got 0"),
        ({"seed": -1}, "seed must be an integer >= 0, but got -1"),
    ],
)
def test_imbalance_that_cannot_be_had(small_images, arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.mnist_imbalanced(small_images, **arguments)


@real_data
def test_the_real_mnist():
    images = datasets.mnist()
    assert images.train_inputs.shape == (60_000, 28, 28)
    assert images.test_inputs.shape == (10_000, 28, 28)
    split = datasets.mnist_imbalanced(images)
    assert np.bincount(split.train_labels).tolist() == [
        4000, 2400, 1440, 864, 518, 311, 187, 112, 67, 40,
    ]  # fmt: skip
    assert np.bincount(split.valid_labels).tolist() == [
        1000, 600, 360, 216, 130, 78, 47, 28, 17, 10,
    ]  # fmt: skip
    assert len(split.test_labels) == 10_000


# Splits


@pytest.mark.parametrize("n", [30, 101, 999])
def test_a_split_is_stratified_and_disjoint(n):
    labels = np.random.default_rng(n).choice(3, n, p=[0.6, 0.3, 0.1])
    train, valid, test = containers.split_rows(labels, 3, seed=0)
    assert np.array_equal(np.sort(np.concatenate([train, valid, test])), np.arange(n))
    assert len(test) == -(-n // 10)
    assert 0 <= len(valid) - len(train) <= 1
    for rows in (train, valid, test):
        exact = np.bincount(labels) * len(rows) / n
        assert np.abs(np.bincount(labels[rows], minlength=3) - exact).max() < 1.5


def test_tables_are_filled_and_standardised_by_the_training_rows():
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(5, 3, 200), np.full(200, 7.0)], axis=1)
    values[rng.random(200) < 0.2, 0] = np.nan
    labels = np.arange(200) % 2
    table = containers.tabular(values, labels, features=("a", "b"), classes=2, name="Table", seed=3)
    train, _, test = containers.split_rows(labels, 2, 3)
    column = values[train, 0]
    column = np.where(np.isnan(column), np.nanmedian(column), column)
    expected = np.where(np.isnan(values[test, 0]), np.nanmedian(values[train, 0]), values[test, 0])
    np.testing.assert_allclose(
        table.test_inputs[:, 0], (expected - column.mean()) / column.std(), rtol=1e-5, atol=1e-6
    )
    assert not table.test_inputs[:, 1].any()  # A constant feature says nothing and divides nothing.
    values[:, 1] = np.nan
    with pytest.raises(ValueError, match="no training row has a value of b"):
        containers.tabular(values, labels, features=("a", "b"), classes=2, name="Table", seed=3)


# Adult

ROW = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States"  # noqa: E501


def write_adult(own, data, test, compressed=True):
    for name, text in (("adult.data", data), ("adult.test", test)):
        if compressed:
            (own / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (own / name).write_text(text)


@pytest.mark.parametrize("compressed", [True, False])
def test_quirks_of_adult(own, compressed):
    # 40 ages, each twice; 20 of them in the test file, with a dot; one row with "?"; one more
    # that differs only in what is dropped later, and so is no duplicate.
    rows = [ROW.replace("39", str(age)) for age in range(20, 60)]
    labels = ["<=50K" if age % 4 else ">50K" for age in range(20, 60)]
    lines = [f"{row}, {label}" for row, label in zip(rows, labels, strict=True)]
    data = "\n".join([*lines, *lines[:20], ROW.replace("State-gov", "?") + ", >50K"]) + "\n\n"
    other = ROW.replace("39", "20").replace("2174", "9") + ", >50K."
    test = "\n".join(["|1x3 Cross validator", *(f"{line}." for line in lines[20:]), other]) + "\n\n"
    write_adult(own, data, test, compressed)
    with pytest.raises(DataError, match="verify=False"):
        datasets.adult()
    table = datasets.adult(verify=False)
    assert [len(p) for p in (table.train_labels, table.valid_labels, table.test_labels)] == [
        18, 18, 5,
    ]  # fmt: skip
    labels = np.concatenate([table.train_labels, table.valid_labels, table.test_labels])
    assert labels.sum() == 11
    assert (table.name, table.synthetic, table.classes) == ("Adult", False, 2)
    assert len(table.features) == 11
    assert not {"education-num", "capital-gain", "capital-loss"} & set(table.features)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1, 2, 3", "every line of .* must have 15 values, .* but one is '1, 2, 3"),
        (f"{ROW}, >50K, 7", "Expected 15 fields in line 2, saw 16"),
        (f"{ROW}, 60K", "the last <=50K or >50K"),
        (ROW.replace("39", "old") + ", >50K", "whole numbers for age"),
    ],
)
def test_a_bad_line_of_adult_is_named(own, line, message):
    write_adult(own, f"{ROW}, >50K\n{line}\n", f"{ROW}, >50K.\n")
    with pytest.raises(DataError, match=message):
        datasets.adult(verify=False)


def test_an_adult_that_cannot_be_read(own):
    write_adult(own, f"{ROW}, >50K\n", "")
    (own / "adult.test.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"adult.test.gz cannot be read"):
        datasets.adult(verify=False)
    write_adult(own, ROW.replace("White", "?") + ", >50K\n", "")
    with pytest.raises(DataError, match="no row without"):
        datasets.adult(verify=False)


@real_data
def test_the_real_adult():
    table = datasets.adult()
    parts = (table.train_inputs, table.valid_inputs, table.test_inputs)
    assert [part.shape for part in parts] == [(20_328, 11), (20_329, 11), (4_518, 11)]
    assert all(part.dtype == np.float32 for part in parts)
    np.testing.assert_allclose(table.train_inputs.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(table.train_inputs.std(axis=0), 1, atol=1e-4)
    means = [
        labels.mean() for labels in (table.train_labels, table.valid_labels, table.test_labels)
    ]
    np.testing.assert_allclose(means, means[0], atol=2e-4)
    rows = {name: tables.adult_rows(datasets.find(f"adult.{name}.gz")) for name in ("data", "test")}
    assert [len(part) for part in rows.values()] == [32_561, 16_281]
    assert sum((~(part == "?").any(axis=1)).sum() for part in rows.values()) == 45_222


# Tadpole

FEATURES = tuple(tables.tadpole_columns().index)


def write_tadpole(path, drop=(), **changes):
    """30 visits of MCI, 20 of AD, 5 normal ones, 5 without a diagnosis."""
    diagnoses = (
        ["MCI"] * 20 + ["NL to MCI", "Dementia to MCI"] * 5 + ["Dementia"] * 12
        + ["MCI to Dementia"] * 8 + ["NL"] * 3 + ["MCI to NL"] * 2 + [""] * 5
    )  # fmt: skip
    columns = ["RID", *FEATURES, "DX"]
    lines = [",".join(f'"{column}"' for column in columns if column not in drop)]
    for i, diagnosis in enumerate(diagnoses):
        values = {name: str(i + j) for j, name in enumerate(FEATURES)} | {"RID": "1"}
        values |= {"FDG": "" if i % 3 else "1.5", "AV45": "-4" if i % 2 else "1"}
        values |= {"ABETA_UPENNBIOMK9_04_19_17": "<200"} | changes | {"DX": diagnosis}
        lines.append(",".join(values[column] for column in columns if column not in drop))
    path.write_text("\n".join(lines) + "\n")


def test_tadpole_from_a_file_of_your_own(own):
    write_tadpole(own / "TADPOLE_D1_D2.csv")
    table = datasets.tadpole()
    assert (table.name, table.synthetic) == ("Tadpole", False)
    labels = np.concatenate([table.train_labels, table.valid_labels, table.test_labels])
    assert np.bincount(labels).tolist() == [30, 10]
    assert len(table.test_labels) == 4
    assert np.isfinite(table.train_inputs).all()
    assert not table.train_inputs[:, table.features.index("ABETA_UPENNBIOMK9_04_19_17")].any()
    assert datasets.tadpole(synthetic=True).synthetic


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drop": ("FDG", "MMSE", "DX")}, "lacks MMSE, FDG, DX"),
        ({"AGE": "old"}, "AGE in .* must be a number or empty, but is 'old'"),
        ({"AGE": "70,1"}, "cannot be read .*Length of header"),
    ],
)
def test_a_tadpole_of_another_form_is_rejected(tmp_path, arguments, message):
    write_tadpole(tmp_path / "mine.csv", **arguments)
    with pytest.raises(DataError, match=message):
        datasets.tadpole(tmp_path / "mine.csv")


def test_a_tadpole_that_is_not_there(own, tmp_path):
    with pytest.raises(DataError, match=r"but .*none.csv is no file"):
        datasets.tadpole(tmp_path / "none.csv")
    with pytest.raises(DataError, match="licence forbids copies"):
        datasets.tadpole(synthetic=False)
    with pytest.raises(ValueError, match="give one"):
        datasets.tadpole(tmp_path / "none.csv", synthetic=True)
    (tmp_path / "one.csv").write_text(",".join([*FEATURES, "DX"]) + "\n")
    with pytest.raises(DataError, match="has 0 of MCI and 0 of AD"):
        datasets.tadpole(tmp_path / "one.csv")


def test_the_generated_tadpole_says_so_and_is_of_use(own):
    table = datasets.tadpole(seed=1)
    assert (table.name, table.synthetic) == ("Tadpole (synthetic)", True)
    labels = np.concatenate([table.train_labels, table.valid_labels, table.test_labels])
    assert np.bincount(labels).tolist() == [4044, 1053]
    assert len(table.features) == 17
    np.testing.assert_array_equal(table.train_inputs, datasets.tadpole(seed=1).train_inputs)
    assert not np.array_equal(table.train_inputs, datasets.tadpole(seed=2).train_inputs)
    # Sicker people score lower, features go together, and no class can be read off without error.
    sick = table.train_labels == 1
    mmse, adas = (table.train_inputs[:, table.features.index(f)] for f in ("MMSE", "ADAS13"))
    assert mmse[sick].mean() < mmse[~sick].mean() - 0.5
    assert np.corrcoef(mmse[~sick], adas[~sick])[0, 1] < -0.3
    rows = np.c_[table.train_inputs, np.ones(len(sick))]
    weights = np.linalg.lstsq(rows, np.where(sick, 1.0, -1.0))[0]
    right = (rows @ weights > 0) == sick
    assert 0.6 < (right[sick].mean() + right[~sick].mean()) / 2 < 0.99


# Elec2 and weather


def test_series_from_files_of_your_own(own):
    (own / "weather.csv").write_text(f"{tables.WEATHER_HEADER}\n" + "1,2,3,4,5,6,7,8.5,1\n" * 3)
    series = datasets.weather(verify=False)
    inputs, labels, features = series
    assert (inputs.shape, inputs.dtype, labels.tolist()) == ((3, 8), np.float32, [1, 1, 1])
    first = next(series.rows())
    assert first == (dict(zip(features, [1, 2, 3, 4, 5, 6, 7, 8.5], strict=True)), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "first line must be"),
        (f"{tables.WEATHER_HEADER}\n1,2\n", "cannot be read: could not convert"),
        (f"{tables.WEATHER_HEADER}\n1,2,3,4,5,6,7,8,1,2\n", "Length of header"),
        (f"{tables.WEATHER_HEADER}\n1,2,3,4,5,6,7,nan,1\n", "finite"),
        (f"{tables.WEATHER_HEADER}\n1,2,3,4,5,6,7,8,2\n", "classes 0 or 1"),
        (f"{tables.WEATHER_HEADER}\n1,2,3,4,5,6,7,rain,1\n", "cannot be read"),
    ],
)
def test_a_stream_of_another_form_is_rejected(own, text, message):
    (own / "weather.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        datasets.weather(verify=False)


@real_data
@pytest.mark.parametrize(
    ("load", "rows", "ups"), [(datasets.elec2, 45_312, 19_237), (datasets.weather, 18_159, 5_698)]
)
def test_the_real_streams(load, rows, ups):
    inputs, labels, features = load()
    assert inputs.shape == (rows, 8) == (len(labels), len(features))
    assert labels.sum() == ups


def test_true_is_no_number_of_rows():
    with pytest.raises(ValueError, match="n must be an integer >= 1, but got True"):
        datasets.streams.batches(True, 1)
    assert len(next(datasets.streams.batches(np.int32(3), 1))) == 1
    assert mnist_data.MEAN == 0.1307
