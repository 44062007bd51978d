"""What is made wrong in the streaming settings, to see who complains.

Learners are real ones with other options than the bound is told; bounds lose a factor or a term; a
mixture weighs the real members in a wrong way.
"""

from .settings import STREAMING, Mutation

_BOUND = Mutation("bound / 10", bound=0.1)
_MIXTURES = (
    *(
        Mutation(name, mixture=name)
        for name in (
            "wrong sign", "best member dropped", "never renewed", "rate 1/2", "no share",
            "share x 100",
        )
    ),
    _BOUND,
)  # fmt: skip
MUTANTS: dict[str, tuple[Mutation, ...]] = {
    STREAMING[0]: (
        Mutation("no discount", lambda stream: {"memory": 1e6}),
        Mutation("memory x 10", lambda stream: {"memory": 10.0 * stream.memory}),
        Mutation("memory / 5", lambda stream: {"memory": 0.2 * stream.memory}),
        Mutation("no ridge", lambda stream: {"penalty": 1e-7}),
        Mutation("inertia x 10", lambda stream: {"inertia": 10.0 * stream.inertia}),
        Mutation("another loss", lambda stream: {"loss": "huber", "delta": 0.5}),
        Mutation("no path", without="path"),
        Mutation("no volume", without="volume"),
        _BOUND,
    ),
    STREAMING[1]: _MIXTURES,
    STREAMING[2]: _MIXTURES,
}
PROBLEMS = {STREAMING[0]: 6, STREAMING[1]: 12, STREAMING[2]: 18}
"""One stream of each family, of mixtures for each share."""
