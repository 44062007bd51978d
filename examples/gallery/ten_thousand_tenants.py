# %% [markdown]
# # Ten thousand tenants
# Ten thousand customers, each with a taste of its own, and forty rows of each. One model for all
# cannot know whom it talks to. A `Pool` keeps a self-tuning model for each customer in one stacked
# state and learns a batch of rows of many of them in one compiled call.

# %%
import matplotlib.pyplot as plt
import numpy as np

from obax.estimators import Pool, StreamingClassifier

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
rng = np.random.default_rng(0)
TENANTS, ROWS, FEATURES = 10_000, 40, 3
taste = 2.0 * rng.normal(size=(TENANTS, FEATURES))
inputs = rng.normal(size=(ROWS, TENANTS, FEATURES))
score = np.einsum("rtf,tf->rt", inputs, taste)
labels = rng.random((ROWS, TENANTS)) < 1 / (1 + np.exp(-score))
tenants = np.arange(TENANTS)


# %% Each batch has one row of every tenant; predictions are made before it is learned.
def right(pool, keys):
    """Whether each row was predicted rightly."""
    found = np.empty((ROWS, TENANTS), bool)
    for row in range(ROWS):
        said = pool.progressive(keys, inputs[row], labels[row])
        column = list(pool.classes_).index(True) if True in list(pool.classes_) else 0
        found[row] = (said[:, column] > 0.5) == labels[row]
    return found


own = right(Pool(StreamingClassifier()), tenants)
shared = right(Pool(StreamingClassifier()), np.zeros(TENANTS, int))
best = (score > 0) == labels
print(f"{TENANTS:,} models, {labels.size:,} rows")

# %%
figure, (left, beside) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, found, colour, dash in (
    ("one model for all", shared, GREY, "--"),
    ("a model for each tenant", own, BLUE, "-"),
    ("tastes known in advance", best, GREEN, ":"),
):
    left.plot(np.arange(1, ROWS + 1), found.mean(axis=1), dash, color=colour, label=name)
    late = np.sort(found[ROWS // 2 :].mean(axis=0))
    beside.plot(late, np.linspace(0, 1, TENANTS), dash, color=colour)
left.set(xlabel="rows of a tenant so far", ylabel="right, over all tenants", ylim=(0.45, 1))
beside.set(xlabel="right in a tenant's last 20 rows", ylabel="part of the tenants below")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("ten_thousand_tenants.png", dpi=90)
