"""Families of problems whose constants are known and whose assumptions are verified."""

from .catalogue import FAMILIES as FAMILIES, SETTINGS as SETTINGS, Drawn as Drawn, draw as draw
