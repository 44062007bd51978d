"""Docstrings as they are written, shown well: doctests and notation are code, not Markdown.

A line that begins with `>>>` would be a quotation three deep. From there to the next empty line it
becomes a fenced block; nothing else in a docstring is touched.
"""

import re

import griffe

DOCTEST = re.compile(
    r"(?:^|(?<=\n))( *)>>> .*(?:\n(?!\s*\n).+)*(?:\n\s*\n\1>>> .*(?:\n(?!\s*\n).+)*)*"
)


class Doctests(griffe.Extension):
    """Puts a fence around every doctest."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """`text` with its doctests in fences.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    return DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
