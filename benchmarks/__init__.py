"""Speed and memory of obax: `python -m benchmarks.core`, `python -m benchmarks.peers`."""
