"""Until all experiments have moved: see `verdict` and `curves`."""

from .curves import accuracy_headline as accuracy_headline
from .verdict import interval as interval
