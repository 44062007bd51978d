# %% [markdown]
# # A classifier for a stream that drifts
# Rows arrive one at a time; what separates the classes turns slowly, stands still, and jumps.
# `StreamingClassifier` predicts each row before it learns it, and tunes penalty, memory and
# inertia as it goes: a short memory while things turn, a longer one while they stand still. After
# the jump it takes another way to the same end: a window of a few rows, and inertia (how firmly
# weights stay where they were) to remember by. Beside it the same model with the memory held short
# and held long.

# %%
import matplotlib.pyplot as plt
import numpy as np

from obax.estimators import StreamingClassifier

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"
rng = np.random.default_rng(1)
T = 9000
angle = np.concatenate([np.linspace(0, 4 * np.pi, 3000), np.full(3000, 1.0), np.full(3000, 4.0)])
inputs = rng.normal(size=(T, 6))
score = inputs[:, 0] * np.cos(angle) + inputs[:, 1] * np.sin(angle) + 0.5 * inputs[:, 2]
labels = (rng.random(T) < 1 / (1 + np.exp(-3 * score))).astype(int)


# %%
def played(model):
    """Log loss of each row before it is learned, and the memory after it."""
    losses, memories = np.empty(T), np.empty(T)
    for t in range(T):
        row = dict(zip("abcdef", inputs[t].tolist(), strict=True))
        said = model.predict_proba_one(row).get(int(labels[t]), 0.5)
        losses[t] = -np.log(max(said, 1e-6))
        model.learn_one(row, int(labels[t]))
        memories[t] = model.hyperparameters_["memory"]
    return losses, memories


alone = {"learn": (), "members": "tuned"}
models = {
    "memory of 30 rows": StreamingClassifier(memory=30, **alone),
    "memory of 3,000 rows": StreamingClassifier(memory=3000, **alone),
    "tuned as it goes": StreamingClassifier(),
}
runs = {name: played(model) for name, model in models.items()}

# %%
figure, (above, below) = plt.subplots(2, 1, figsize=(8.5, 5), sharex=True, layout="constrained")
looks = ((ORANGE, "-."), (GREY, "--"), (BLUE, "-"))
for (name, (losses, memories)), (colour, dash) in zip(runs.items(), looks, strict=True):
    smooth = np.convolve(losses, np.ones(300) / 300, "valid")
    label = f"{name}: {losses.mean():.3f}"
    above.plot(np.arange(299, T), smooth, dash, color=colour, label=label)
    below.plot(memories, dash, color=colour)
above.set(ylabel="log loss, mean of 300")
below.set(ylabel="memory in rows", yscale="log", xlabel="row (turns until 3,000, jumps at 6,000)")
above.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, title="mean log loss")
figure.savefig("stream_classifier.png", dpi=90)
