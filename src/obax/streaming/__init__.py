"""`obax stream`: rows in, predictions and hyperparameters out, for as long as they come."""

from .beginning import StreamError as StreamError
from .job import Job as Job
from .stopping import Stop as Stop
