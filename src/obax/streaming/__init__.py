"""Rows in, predictions and hyperparameters out: what `obax stream` runs."""

from .input_checks import StreamError as StreamError
from .job import Checkpoint as Checkpoint, Job as Job, Output as Output
from .signals import Stop as Stop
from .source import Input as Input
