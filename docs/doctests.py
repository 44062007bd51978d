"""Docstrings and signatures as the site shows them.

A line that begins with `>>>` would be a quotation three deep in Markdown. From there to the next
empty line it becomes a fenced block. Signatures show the default of a checked field as the value
that a caller gets, and leave out parameters that are ignored (`**_`).
"""

import re

import griffe

DOCTEST = re.compile(
    r"(?:^|(?<=\n))( *)>>> .*(?:\n(?!\s*\n).+)*(?:\n\s*\n\1>>> .*(?:\n(?!\s*\n).+)*)*"
)
FIELD = re.compile(r"^\w*(?:option|field|setting)\((?:default=)?([^(),]+|\([^()]*\))[,)]", re.S)


class Doctests(griffe.Extension):
    """Rewrites docstrings and signatures before a page is drawn."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **kwargs: object) -> None:
        """Rewrite the parameters of a function."""
        if "_" in func.parameters:
            del func.parameters["_"]

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: object) -> None:
        """Rewrite the value of a field, which becomes a default of the class."""
        if attr.value is not None and plain_default(str(attr.value)) != str(attr.value):
            attr.value = plain_default(str(attr.value))


def plain_default(text: str) -> str:
    """Return the value that a field without argument gets.

    >>> plain_default("option(0.001, within('penalty'), fixed=True)"), plain_default("1.0")
    ('0.001', '1.0')
    >>> plain_default("option(('penalty', 'memory'), some_of(KNOWN))")
    "('penalty', 'memory')"
    """
    field = FIELD.match(text)
    return field[1].strip() if field else text


def fenced(text: str) -> str:
    """Put a fence around every doctest.

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
