"""Ready-made streams of bilevel problems: for tests, and to learn from."""

from .examples import comparability as comparability, lower_bound_game as lower_bound_game
from .instance import Instance as Instance
from .loss_tuning import (
    balanced_weights as balanced_weights,
    loss_tuning as loss_tuning,
    loss_tuning_start as loss_tuning_start,
)
from .meta_learning import (
    batch_features as batch_features,
    embed_task as embed_task,
    meta_learning as meta_learning,
    task_logits as task_logits,
)
from .quadratic import online_minmax as online_minmax, quadratic as quadratic
from .regression import dynamic_regression as dynamic_regression, windowed as windowed
from .stream_row import (
    RowsBefore as RowsBefore,
    StreamRow as StreamRow,
    stream_row as stream_row,
)
