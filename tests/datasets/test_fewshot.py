import csv
import io
import itertools
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from obax import datasets
from obax.datasets import DataError, TaskStream, fewshot, image_sets, miniimagenet_data

real_data = pytest.mark.skipif(
    "OBAX_DATA" not in os.environ, reason="OBAX_DATA is not set: no real data"
)


# CIFAR-100


def records(count=3, **changes):
    """`count` images of each of 100 fine classes, five to a superclass."""
    fine = np.repeat(np.arange(100, dtype=np.uint8), count)
    table = np.zeros((len(fine), image_sets.RECORD), np.uint8)
    table[:, 0], table[:, 1] = fine // 5, fine
    table[:, 2:] = np.random.default_rng(0).integers(0, 256, (len(fine), 3072))
    return table


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_cifar(path, train=None, test=None):
    train, test = records() if train is None else train, records(1) if test is None else test
    write_archive(
        path,
        {
            "cifar-100-binary/train.bin": train.tobytes(),
            "cifar-100-binary/test.bin": test.tobytes(),
            "../outside.bin": b"never unpacked",
        },
    )


def test_fc100_splits_by_superclass_and_unpacks_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_cifar(folder / "mine.tar.gz")
    data = datasets.fc100(folder / "mine.tar.gz")
    assert [len(np.unique(part.labels)) for part in (data.train, data.valid, data.test)] == [
        60, 20, 20,
    ]  # fmt: skip
    assert [part.images.shape for part in (data.train, data.valid, data.test)] == [
        (240, 32, 32, 3),
        (80, 32, 32, 3),
        (80, 32, 32, 3),
    ]
    assert set(data.test.labels // 5) == {0, 7, 12, 14}
    assert set(data.valid.labels // 5) == {8, 11, 13, 16}
    # The first image of class 0: stored channel by channel, given with the channels last.
    image = records()[0, 2:].reshape(3, 32, 32)
    np.testing.assert_array_equal(data.test.images[0][5, 7], image[:, 5, 7])
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "mine.tar.gz"]


@pytest.mark.parametrize("fault", ["coarse", "torn", "length", "member", "text", "cut"])
def test_an_archive_of_another_form_is_rejected(tmp_path, fault):
    path = tmp_path / "mine.tar.gz"
    table = records()
    if fault == "coarse":
        table[0, 0] = 20
    if fault == "torn":
        table[0, 0] = 1
    write_cifar(path, table)
    if fault == "length":
        write_archive(path, {"cifar-100-binary/train.bin": table.tobytes()[:-1]})
    if fault == "member":
        write_archive(path, {"../cifar-100-binary/train.bin": table.tobytes()})
    if fault == "text":
        path.write_bytes(b"no archive")
    if fault == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = {
        "coarse": "coarse labels 0 to 19",
        "torn": "fine class 0 into several superclasses",
        "length": "records of 3074 bytes",
    }.get(fault, "is not the binary archive of CIFAR-100")
    with pytest.raises(DataError, match=message):
        datasets.fc100(path)


def test_a_member_that_is_a_link_is_not_followed(tmp_path):
    with tarfile.open(tmp_path / "mine.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("cifar-100-binary/train.bin")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(DataError, match="must be a file of records"):
        datasets.fc100(tmp_path / "mine.tar.gz")


@real_data
def test_the_real_fc100():
    data = datasets.fc100()
    parts = (data.train, data.valid, data.test)
    assert [len(np.unique(part.labels)) for part in parts] == [60, 20, 20]
    # Every class has 600 images in the complete archive, 120 in the copy we test with.
    counts = {n for part in parts for n in np.unique(part.labels, return_counts=True)[1]}
    assert counts in ({120}, {600})


# miniImageNet


def write_folder(folder, below="images", size=(84, 84)):
    """Two classes of three images in each table; a red one, a green one, a blue one."""
    (folder / below).mkdir(parents=True, exist_ok=True)
    for part, table in enumerate(("train", "val", "test")):
        with (folder / f"{table}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["filename", "label"])
            for label, index in itertools.product(range(2), range(3)):
                name = f"n{part}{label}_{index}.png"
                colour = tuple(np.eye(3, dtype=int)[index] * 255)
                Image.new("RGB", size, colour).save(folder / below / name)
                writer.writerow([name, f"n{part}{label}"])
    return folder / below


@pytest.mark.parametrize("below", ["images", "."])
def test_a_folder_of_images_is_read_when_indexed(tmp_path, below):
    images = write_folder(tmp_path, below)
    data = datasets.miniimagenet(tmp_path)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.labels.tolist() == [4, 4, 4, 5, 5, 5]
    assert data.train.images.shape == (6, 84, 84, 3)
    found = data.train.images[np.array([2, 0])]
    assert found.shape == (2, 84, 84, 3)
    assert found[:, 0, 0].tolist() == [[0, 0, 255], [255, 0, 0]]
    # What was read is kept, what was not read is not.
    (images / "n00_0.png").unlink()
    (images / "n00_1.png").unlink()
    assert data.train.images[np.array([0])][0, 0, 0].tolist() == [255, 0, 0]
    with pytest.raises(DataError, match=r"n00_1.png cannot be read as an image"):
        data.train.images[np.array([1])]


def test_images_are_resized_and_memory_is_bounded(tmp_path):
    write_folder(tmp_path, size=(20, 10))
    one = 3 * 8 * 8
    data = datasets.miniimagenet(tmp_path, size=8, cache_bytes=3 * 2 * one)
    assert data.train.images[np.arange(6)].shape == (6, 8, 8, 3)
    assert data.train.images.image.cache_info().currsize == 2
    # Where there is room for all, a part may keep all of its own.
    data = datasets.miniimagenet(tmp_path, size=8, cache_bytes=100 * one)
    for _ in range(2):
        data.train.images[np.arange(6)]
    assert data.train.images.image.cache_info()[:2] == (6, 6)
    assert data.test.images.image.cache_info().currsize == 0


@pytest.mark.parametrize("fault", ["sizes", "absent", "table", "columns", "outside", "damaged"])
def test_a_folder_of_another_form_is_rejected(tmp_path, fault):
    images = write_folder(tmp_path)
    if fault == "sizes":
        for index in range(3):
            Image.new("RGB", (60 + index, 84)).save(images / f"n11_{index}.png")
        message = r"3 are not 84 x 84: n11_0.png \(60 x 84\), n11_1.png \(61 x 84\)"
    if fault == "absent":
        for path in images.glob("n1*"):
            path.unlink()
        message = r"6 of the 18 images .* are not in .*images: n10_0.png, n10_1.png, n10_2.png ..."
    if fault == "table":
        (tmp_path / "val.csv").unlink()
        message = r"val.csv is not there"
    if fault == "columns":
        (tmp_path / "val.csv").write_text("file,class\na,b\n")
        message = "columns filename and label, but has file, class"
    if fault == "outside":
        Image.new("RGB", (84, 84)).save(tmp_path / "secret.png")
        (tmp_path / "val.csv").write_text("filename,label\n../secret.png,n1\n")
        message = r"plain file names and labels, but has '../secret.png'"
    if fault == "damaged":
        (images / "n20_0.png").write_bytes(b"no image")
        message = r"n20_0.png cannot be read as an image"
    with pytest.raises(DataError, match=message):
        datasets.miniimagenet(tmp_path)


def test_a_class_in_two_tables_is_rejected(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "val.csv").write_text((tmp_path / "train.csv").read_text())
    with pytest.raises(DataError, match="class n00 is in the tables of both train and valid"):
        datasets.miniimagenet(tmp_path)
    with pytest.raises(DataError, match="folder must be a folder"):
        datasets.miniimagenet(tmp_path / "none")


# The same in an archive


def pack(folder, path, root="miniimagenet", mode="w", leave=lambda name: False):
    with tarfile.open(path, mode) as tar:
        for file in sorted(folder.rglob("*")):
            name = f"{root}/{file.relative_to(folder)}"
            if file.is_file() and not leave(name):
                tar.add(file, name)
    return path


def test_an_archive_gives_what_its_folder_does(tmp_path):
    write_folder(tmp_path / "one")
    archive = pack(tmp_path / "one", tmp_path / "mine.tar")
    ours, theirs = (datasets.miniimagenet(place) for place in (archive, tmp_path / "one"))
    for name in ("train", "valid", "test"):
        one, other = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_array_equal(one.images[np.arange(6)], other.images[np.arange(6)])
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.names == other.names
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.tar", "one"]


@pytest.mark.parametrize(
    "fault", ["root", "table", "absent", "link", "outside", "cut", "packed", "text", "damaged"]
)
def test_an_archive_of_images_of_another_form_is_rejected(tmp_path, fault):
    images = write_folder(tmp_path / "one")
    path = tmp_path / "mine.tar"
    message = {
        "root": "miniimagenet/train.csv is not there",
        "table": "miniimagenet/val.csv is not there",
        "absent": "6 of the 18 images .* are not in .*mine.tar:miniimagenet/images: n10_0.png",
        "link": "1 of the 18 images .* n00_0.png",
        "outside": "plain file names and labels, but has '../secret.png'",
        "cut": "cannot be read as a tar archive",
        "packed": "compressed, unpack it",
        "text": "cannot be read as a tar archive",
        "damaged": "mine.tar:miniimagenet/images/n20_0.png cannot be read as an image",
    }[fault]
    if fault == "outside":
        (tmp_path / "one" / "val.csv").write_text("filename,label\n../secret.png,n1\n")
    if fault == "damaged":
        (images / "n20_0.png").write_bytes(b"no image")
    gone = {"table": "val.csv", "absent": "/n1", "link": "n00_0.png"}.get(fault)
    root = "elsewhere" if fault == "root" else "miniimagenet"
    mode = "w:gz" if fault == "packed" else "w"
    pack(tmp_path / "one", path, root, mode, lambda name: bool(gone) and gone in name)
    if fault == "link":
        with tarfile.open(path, "a") as tar:
            info = tarfile.TarInfo("miniimagenet/images/n00_0.png")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    if fault == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if fault == "text":
        path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=message):
        datasets.miniimagenet(path)


def test_an_archive_that_changes_while_it_is_read_is_said(tmp_path, monkeypatch):
    write_folder(tmp_path / "one")
    path = pack(tmp_path / "one", tmp_path / "mine.tar")
    data = datasets.miniimagenet(path)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match=r"mine.tar is cut off: images/n20_0.png ends after 0 of"):
        data.test.images[np.array([0])]
    pack(tmp_path / "one", path)
    monkeypatch.setattr(miniimagenet_data, "LARGEST", 10)
    with pytest.raises(DataError, match=r"train.csv has .* bytes, far too many"):
        datasets.miniimagenet(path)


def test_the_archive_or_its_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("OBAX_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"neither in .*--set folder=PATH"):
        datasets.miniimagenet()

    def status():
        return next(one for one in datasets.status() if one.dataset == "miniimagenet")

    assert (status().state, status().path) == ("missing", None)
    write_folder(tmp_path / "miniimagenet")
    assert (status().state, status().path) == ("unpacked, not checked", tmp_path / "miniimagenet")
    assert datasets.miniimagenet().train.images.shape == (6, 84, 84, 3)
    # The archive goes before the folder, and is held to its checksum.
    path = pack(tmp_path / "miniimagenet", tmp_path / "miniimagenet.tar")
    assert status().path == path and status().state.startswith("another version")
    with pytest.raises(DataError, match="SHA-256"):
        datasets.miniimagenet()
    assert datasets.miniimagenet(verify=False).train.images.shape == (6, 84, 84, 3)


@real_data
def test_the_real_miniimagenet():
    data = datasets.miniimagenet()
    parts = (data.train, data.valid, data.test)
    assert [len(np.unique(part.labels)) for part in parts] == [64, 16, 20]
    image = data.train.images[np.array([0])]
    assert image.shape == (1, 84, 84, 3) and 10 < image.mean() < 245
    assert data.train.images.image.cache_info().maxsize == len(data.train.images)


# Tasks


@pytest.fixture(scope="module")
def numbered():
    """8 classes of 12 "images", each nothing but its own number."""
    return np.arange(96, dtype=np.uint8)[:, None], np.repeat(np.arange(8), 12) + 10


def rows_of(task, part):
    return np.round(task[part][0][:, 0] * 255).astype(int)


def test_a_task_is_as_asked_for(numbered):
    stream = TaskStream(*numbered, ways=5, shots=3, queries=2, seed=1)
    for task in itertools.islice(stream, 50):
        (inputs, labels), (queries, targets) = task["support"], task["query"]
        assert (inputs.shape, inputs.dtype) == ((15, 1), np.float32)
        assert (queries.shape, targets.shape) == ((10, 1), (10,))
        assert labels.tolist() == np.repeat(np.arange(5), 3).tolist()
        assert labels.dtype == np.int32
        support, query = rows_of(task, "support"), rows_of(task, "query")
        # Disjoint, no image twice, and one real class for each number.
        assert len(set(support) | set(query)) == 25
        classes = support[::3] // 12
        assert len(set(classes)) == 5
        np.testing.assert_array_equal(support // 12, classes[labels])
        np.testing.assert_array_equal(query // 12, classes[targets])


def test_tasks_depend_on_seed_and_number_only(numbered):
    stream = TaskStream(*numbered, ways=3, shots=2, queries=1, seed=4)
    whole = [rows_of(task, "support") for task in itertools.islice(stream, 12)]
    later = [rows_of(task, "support") for task in itertools.islice(stream.tasks(start=8), 5)]
    np.testing.assert_array_equal(whole[7:], later)
    np.testing.assert_array_equal(rows_of(stream.task(3), "support"), whole[2])
    other = TaskStream(*numbered, ways=3, shots=2, queries=1, seed=5)
    assert not np.array_equal(rows_of(other.task(1), "support"), whole[0])


@pytest.mark.parametrize("drift", [{}, {"pool": 2, "every": 3}])
def test_unique_tasks_never_come_again(drift):
    # So few images that tasks drawn at random would repeat at once: 3 classes, C(5, 2) = 10 tasks.
    images, labels = np.arange(15, dtype=np.uint8)[:, None], np.repeat(np.arange(3), 5)
    kinds = {"ways": 2, "shots": 1, "queries": 1, **drift}
    unique = TaskStream(images, labels, unique=True, seed=2, **kinds)
    seen = [frozenset([*rows_of(t, "support"), *rows_of(t, "query")]) for t in unique]
    assert len(seen) == len(set(seen)) == 10
    with pytest.raises(ValueError, match="t must be at most 10: unique=True"):
        unique.task(11)
    np.testing.assert_array_equal(
        rows_of(unique.task(7), "query"), rows_of(list(unique)[6], "query")
    )


def test_subsets_and_permutations_are_one_to_one():
    subsets = {frozenset(fewshot.subset(rank, 9, 4)) for rank in range(126)}
    assert len(subsets) == 126
    assert all(len(subset) == 4 and max(subset) < 9 for subset in subsets)
    for n in (1, 2, 126, 1000):
        assert sorted(fewshot.permuted(i, n, b"k") for i in range(n)) == list(range(n))
    assert fewshot.permuted(10**20, 10**21, b"k") < 10**21


def test_a_drifting_pool_moves_on_by_one_class(numbered):
    stream = TaskStream(*numbered, ways=2, shots=1, queries=1, pool=3, every=40, seed=3)
    pools = [
        {
            c
            for t in range(40 * k + 1, 40 * k + 41)
            for c in rows_of(stream.task(t), "support") // 12
        }
        for k in range(9)
    ]
    assert all(len(pool) == 3 for pool in pools)
    assert all(len(one & following) == 2 for one, following in itertools.pairwise(pools))
    assert set().union(*pools) == set(range(8))
    assert pools[0] == pools[8]  # Once round the circle.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ways": 9}, "ways must be at most the 8 classes, but got 9"),
        ({"shots": 8, "queries": 5}, "need 13 images of each class, but class 10 has 12"),
        ({"ways": 5, "pool": 4}, "pool must be from ways = 5 to the 8 classes, but got 4"),
        ({"pool": 9}, "pool must be from ways = 5 to the 8 classes, but got 9"),
        ({"shots": 13, "names": {10: "owl"}}, "of each class, but class owl has 12"),
        ({"shots": 0}, "shots must be an integer >= 1, but got 0"),
        ({"labels": np.zeros(3, int)}, r"for each of the 96 images, but are int64\[3\]"),
    ],
)
def test_tasks_that_cannot_be_had(numbered, arguments, message):
    images, labels = numbered
    with pytest.raises(ValueError, match=message):
        TaskStream(images, arguments.pop("labels", labels), **arguments)


def test_the_generated_set_is_of_use():
    data = datasets.tiny_fewshot(seed=1)
    assert data.synthetic
    assert "synthetic" in data.name
    classes = [set(part.labels.tolist()) for part in (data.train, data.valid, data.test)]
    assert [len(part) for part in classes] == [8, 5, 5]
    assert len(set().union(*classes)) == 18
    np.testing.assert_array_equal(data.train.images, datasets.tiny_fewshot(seed=1).train.images)
    # The nearest mean of the support tells the classes of a query apart.
    stream = TaskStream(data.test.images, data.test.labels, ways=5, shots=5, queries=5)
    (inputs, labels), (queries, targets) = stream.task(1).values()
    means = np.stack([inputs[labels == j].mean(axis=0) for j in range(5)])
    guess = ((queries[:, None] - means) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (guess == targets).mean() > 0.9


def test_tasks_read_only_the_images_they_need(tmp_path):
    write_folder(tmp_path)
    data = datasets.miniimagenet(tmp_path)
    stream = TaskStream(data.train.images, data.train.labels, ways=2, shots=1, queries=1)
    assert stream.task(1)["support"][0].shape == (2, 84, 84, 3)
    assert data.train.images.image.cache_info().currsize == 4
