"""Data sets: checksummed, cached, offline first; and streams with imbalance and drift."""

from . import fewshot as fewshot, streams as streams
from .containers import Images as Images, Split as Split, Tabular as Tabular
from .fewshot import TaskStream as TaskStream
from .image_sets import (
    FewShot as FewShot,
    Labelled as Labelled,
    fc100 as fc100,
    tiny_fewshot as tiny_fewshot,
)
from .miniimagenet_data import miniimagenet as miniimagenet
from .mnist_data import mnist as mnist, mnist_imbalanced as mnist_imbalanced
from .registry import (
    DATASETS as DATASETS,
    DataError as DataError,
    DataSet as DataSet,
    FileStatus as FileStatus,
    Source as Source,
    cache_folder as cache_folder,
    fetch as fetch,
    find as find,
    located as located,
    status as status,
)
from .tables import (
    Series as Series,
    adult as adult,
    elec2 as elec2,
    tadpole as tadpole,
    weather as weather,
)
