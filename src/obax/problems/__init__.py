"""Ready-made streams of bilevel problems: for tests, and to learn from."""

from .actor_critic import actor_critic as actor_critic, critic_matrix as critic_matrix
from .instance import Instance as Instance
from .linear_models import (
    group_losses as group_losses,
    hyper_cleaning as hyper_cleaning,
    hyper_representation as hyper_representation,
    robust_regression as robust_regression,
    strategic_regression as strategic_regression,
    strategic_rule as strategic_rule,
    subspace_error as subspace_error,
)
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
from .moments import windowed as windowed
from .quadratic import (
    comparability as comparability,
    lower_bound_game as lower_bound_game,
    online_minmax as online_minmax,
    quadratic as quadratic,
)
from .regression import dynamic_regression as dynamic_regression
from .stream_row import (
    RowsBefore as RowsBefore,
    StreamRow as StreamRow,
    stream_row as stream_row,
)
