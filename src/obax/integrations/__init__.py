"""Engines of others, each behind an extra and none loaded before it is used."""
