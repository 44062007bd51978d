"""What a server measures, in the format of Prometheus."""

import time
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from .model import ServedModel

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
GAUGES = {
    "rows_learned": ("Rows learned.",),
    "rows_rejected": ("Rows rejected since the model began.",),
    "mean_loss": ("Mean loss of predicting each row before it was learned.",),
    "pending_labels": ("Rows that wait for their labels.",),
    "dropped_labels": ("Rows that were dropped before their labels came.",),
    "checkpoint_age_seconds": ("Time since the model was saved or loaded.",),
    "rejected_by_reason": ("Rows rejected since the server started.", "reason"),
    "keys": ("Keys of a pool.",),
    "member_share": ("Share of a member in the prediction.", "member"),
    "hyperparameter": ("Hyperparameters now.", "name", "of"),
}
"""The description of each gauge, and its labels beside the name of the model."""


class Metrics:
    """Latencies and errors since the start, and the state of each model when asked."""

    def __init__(self, models: Sequence[ServedModel]):
        self._models, self.registry = models, CollectorRegistry()
        self.registry.register(self)
        description, labels = "Time to answer a request.", ("model", "operation")
        self.latency = Histogram(
            "obax_request_seconds", description, labels, buckets=BUCKETS, registry=self.registry
        )
        description = "Requests that were answered with an error."
        self.errors = Counter("obax_errors", description, ("status",), registry=self.registry)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the state of each model."""
        gauges = {
            name: GaugeMetricFamily(f"obax_{name}", description, labels=("model", *labels))
            for name, (description, *labels) in GAUGES.items()
        }
        for served in self._models:
            for name, labels, value in _samples(served):
                gauges[name].add_metric([served.name, *labels], value)
        return gauges.values()


def _samples(served: ServedModel) -> Iterator[tuple[str, Sequence[str], float]]:
    """Yield the name of a gauge, its labels and its value."""
    for name, value in numbers(served).items():
        yield name, (), value
    for reason, count in served.reasons.counts.items():
        yield "rejected_by_reason", (reason,), count
    if served.pool is None and served.rows:
        hyperparameters = dict(served.model.hyperparameters_)
        for member, share in hyperparameters.pop("members").items():
            yield "member_share", (str(member),), share
        for name, value in hyperparameters.items():
            for of, one in (value if isinstance(value, dict) else {"": value}).items():
                yield "hyperparameter", (name, str(of)), one


def numbers(served: ServedModel) -> dict[str, float]:
    """Return the numbers that describe a model now."""
    model = served.model
    values = {
        "rows_learned": float(served.rows),
        "rows_rejected": float(model.rejected_.count),
        "mean_loss": float(model.mean_loss_),
        "pending_labels": float(len(served.pending)),
        "dropped_labels": float(served.pending.dropped),
    }
    if served.journal is not None:
        values["checkpoint_age_seconds"] = time.time() - served.saved_at
    if served.pool is not None:
        values["keys"] = float(len(served.pool))
    return values
