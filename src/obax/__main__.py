"""`python -m obax`, the same as `obax`."""

from .cli import main

main()
