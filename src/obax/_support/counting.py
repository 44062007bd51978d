"""Numbers with their nouns."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """So many of them, as one writes it.

    >>> counted(1, "round"), counted(12000, "round"), counted(0, "class", "classes")
    ('1 round', '12,000 rounds', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
