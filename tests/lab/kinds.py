"""The kinds of method in the words of a claim, for tests that claims name them as identifiers."""

import re

from obax.lab.report.figures import KINDS


def kinds_in(words):
    """Return the kinds of method that the words name. Part of another name is not a name."""
    return {kind for kind in KINDS if re.search(rf"(?<![\w-]){kind}(?![\w-])", words)}
