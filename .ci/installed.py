"""Does an installed obax work, both halves of it? `python .ci/installed.py`"""

import obax

game = obax.problems.quadratic(horizon=3)
algorithm = obax.OAGD(game.problem, outer_step_size=0.1, inner_step_size=0.2, inner_steps=2)
state = algorithm.init(game.outer_var, game.inner_var, game.example_round)
state, history = obax.run(algorithm, state, game.rounds)
assert len(history) == 3
print(f"obax {obax.__version__} in {obax.__file__}: the bilevel half works", flush=True)

from obax._support.native import engine
from obax.estimators import StreamingClassifier

model = StreamingClassifier()
for load, label in [(0.2, "calm"), (0.9, "busy")] * 50:
    model.learn_one({"load": load}, label)
assert model.predict_one({"load": 0.9}) == "busy"
assert engine().__name__ == "obax._engine"
print("the streaming models work")
