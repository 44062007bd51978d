"""Models of a stream that keep their own hyperparameters in tune: River's and scikit-learn's."""

from .classifier import StreamingClassifier as StreamingClassifier
from .estimator import Played as Played
from .inputs.table import Table as Table
from .merging import merge as merge
from .pool import Pool as Pool, Tenant as Tenant
from .regressor import StreamingRegressor as StreamingRegressor
