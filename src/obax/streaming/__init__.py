"""Rows in, predictions and hyperparameters out: what `obax stream` runs."""

from .columns import Kinds as Kinds
from .input_checks import StreamError as StreamError
from .job import Checkpoint as Checkpoint, Job as Job, Output as Output
from .signals import Stop as Stop
from .source import Input as Input
from .task import guess_task as guess_task
