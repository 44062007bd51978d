"""Interfaces to other engines, each an extra that is loaded when it is used."""
