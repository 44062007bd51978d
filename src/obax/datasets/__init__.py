"""Data sets: checksummed, cached, offline first; and streams with imbalance and drift."""

from . import fewshot as fewshot, streams as streams
from .adult_data import adult as adult
from .containers import Images as Images, Split as Split, Tabular as Tabular
from .downloads import DataError as DataError, Source as Source
from .drift import Series as Series, elec2 as elec2, weather as weather
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
    DataSet as DataSet,
    FileStatus as FileStatus,
    cache_folder as cache_folder,
    fetch as fetch,
    find as find,
    located as located,
    status as status,
)
from .tadpole_data import tadpole as tadpole
