"""The attack: what people, crashes and bad files do. `python -m benchmarks.attack`."""
