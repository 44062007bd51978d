"""Families of problems whose constants are known and whose assumptions are verified."""
