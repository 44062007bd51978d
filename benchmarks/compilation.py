"""How long the first answer takes: a new process, without and with a cache of compiled programs.

    python -m benchmarks.compilation          # judged: the second process takes less than half

Each process makes a state, runs 200 rounds and plays 3; processor time is what counts.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

LIMIT = 0.5
CASES = {
    "dynamic regression, OAGD w = 1": """
stream = obax.problems.dynamic_regression(200)
algorithm = obax.OAGD(stream.problem, 0.1, 0.05, 10)
""",
    "dynamic regression, OAGD w = 20, own curvature": """
stream = obax.problems.dynamic_regression(200)
algorithm = obax.OAGD(stream.problem, 0.1, 0.05, 10, obax.Window(20))
""",
    "features and head, OAGD w = 10": """
stream = obax.problems.hyper_representation(200)
algorithm = obax.OAGD(stream.problem, 0.01, 0.05, 10, obax.Window(10))
""",
}
BEFORE = "import sys, obax\nif sys.argv[1:]: obax.enable_compilation_cache(sys.argv[1])\n"
AFTER = """
state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
state, history = obax.run(algorithm, state, stream.rounds)
import jax
first = [jax.tree.map(lambda leaf: leaf[t], stream.rounds) for t in range(3)]
list(obax.play(algorithm, state, first))
float(history.played_value.sum())
"""


def processor_seconds(code: str, *arguments: str) -> float:
    """User and system time of a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if the cache saves less than half of the processor time, imports left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one case, not judged")
    given = parser.parse_args(arguments)
    importing = "import obax, jax\nobax.OAGD, obax.run, obax.play, obax.problems.dynamic_regression"
    imports = processor_seconds(importing)
    print(f"imports alone: {imports:.1f} s of processor time")
    missed = False
    for name, case in list(CASES.items())[: 1 if given.quick else None]:
        code = BEFORE + case + AFTER
        with tempfile.TemporaryDirectory() as folder:
            without = processor_seconds(code)
            first = processor_seconds(code, folder)
            second = processor_seconds(code, folder)
        ratio = (second - imports) / (without - imports)
        missed |= ratio > LIMIT
        print(
            f"{name}: {without:.1f} s without a cache, {first:.1f} s filling it, {second:.1f} s "
            f"with it; beyond imports {ratio:.2f} of the time (limit {LIMIT})"
        )
    return int(missed and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
