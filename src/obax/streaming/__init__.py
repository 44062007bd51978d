"""`obax stream`: rows in, predictions and hyperparameters out, for as long as they come."""

from .job import Job as Job, StreamError as StreamError
