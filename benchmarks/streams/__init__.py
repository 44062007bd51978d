"""Self-tuning models on streams: losses, starts, intervals, features, time. See `__main__`."""
