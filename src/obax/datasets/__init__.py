"""Data sets: checksummed, cached, offline first; and streams with imbalance and drift."""

from . import fewshot as fewshot, streams as streams
from ._adult import adult as adult
from ._containers import Images as Images, Split as Split, Tabular as Tabular
from ._download import DataError as DataError, Source as Source
from ._drift import Series as Series, elec2 as elec2, weather as weather
from ._images import (
    FewShot as FewShot,
    Labelled as Labelled,
    fc100 as fc100,
    miniimagenet as miniimagenet,
    tiny_fewshot as tiny_fewshot,
)
from ._mnist import mnist as mnist, mnist_imbalanced as mnist_imbalanced
from ._registry import (
    DATASETS as DATASETS,
    DataSet as DataSet,
    FileStatus as FileStatus,
    cache_folder as cache_folder,
    fetch as fetch,
    find as find,
    status as status,
)
from ._tadpole import tadpole as tadpole
from .fewshot import TaskStream as TaskStream
