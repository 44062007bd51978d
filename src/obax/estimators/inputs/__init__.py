"""Rows and targets of any form, read for the engine by the same rules:

- a feature that is not there, `None` or NaN is *missing*: it counts as its running mean;
- words and dates become columns of numbers, see `columns`;
- a feature becomes known with its first value; those beyond `max_features` are ignored, whatever
  their values are;
- a row with a feature that is none of these, infinite or beyond 1e15 is *rejected*: the model does
  not see it, it is counted and kept in `rejected_`;
- everything else is learned, cut off at 10 deviations from the running mean.

Files: `table` (dicts, arrays and frames as tables), `sparse` (rows by their keys), `columns` (words
and dates), `targets` (targets and weights).
"""
