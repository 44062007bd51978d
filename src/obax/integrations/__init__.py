"""Models of `obax.estimators` inside other people's engines, each in a module of its own, which
alone imports the engine."""
