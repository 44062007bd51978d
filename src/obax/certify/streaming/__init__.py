"""Certificates of the streaming models: the estimators' own kernel, watched row by row.

`streams` draws streams whose comparators are known, `watch` plays the real estimators on them, and
`ridge` and `experts` hold what was suffered against the bounds of `obax.theory`. `settings` puts
these together as the other settings of `obax certify` are.
"""
