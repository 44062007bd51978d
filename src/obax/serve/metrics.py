"""What a server measures, in the format of Prometheus."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from .model import ServedModel

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Latencies and rejected rows since the start, and the state of each model when asked."""

    def __init__(self, models: Iterable[ServedModel]):
        self._models = list(models)
        self._registry = CollectorRegistry()
        self._latency = Histogram(
            "obax_request_seconds",
            "Time to answer a request.",
            ("model", "operation"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._errors = Counter(
            "obax_errors",
            "Requests that were answered with an error.",
            ("status",),
            registry=self._registry,
        )
        self._registry.register(self)

    def answered(self, model: str, operation: str, seconds: float) -> None:
        """Count a request."""
        self._latency.labels(model, operation).observe(seconds)

    def failed(self, status: int) -> None:
        """Count a request that was answered with an error."""
        self._errors.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the state of each model."""
        for name, (description, labels, samples) in self._state().items():
            family = GaugeMetricFamily(f"obax_{name}", description, labels=("model", *labels))
            for values, number in samples:
                family.add_metric(values, number)
            yield family

    def _state(self) -> dict[str, tuple[str, tuple[str, ...], list[tuple[list[str], float]]]]:
        columns: dict[str, Any] = {
            "rows_learned": ("Rows learned.", (), []),
            "rows_rejected": ("Rows rejected since the model began.", (), []),
            "mean_loss": ("Mean loss of predicting each row before it was learned.", (), []),
            "pending_labels": ("Rows that wait for their labels.", (), []),
            "dropped_labels": ("Rows that were dropped before their labels came.", (), []),
            "checkpoint_age_seconds": ("Time since the model was saved or loaded.", (), []),
            "rejected_by_reason": ("Rows rejected since the server started.", ("reason",), []),
            "keys": ("Keys of a pool.", (), []),
            "member_share": ("Share of a member in the prediction.", ("member",), []),
            "hyperparameter": ("Hyperparameters now.", ("name", "of"), []),
        }
        for served in self._models:
            name = served.name
            for column, number in numbers(served).items():
                columns[column][2].append(([name], number))
            for reason, number in served.reasons.counts.items():
                columns["rejected_by_reason"][2].append(([name, reason], number))
            if served.pool is None and served.rows:
                values = dict(served.model.hyperparameters_)
                for member, share in values.pop("members").items():
                    columns["member_share"][2].append(([name, str(member)], share))
                for label, value in values.items():
                    each = value if isinstance(value, dict) else {"": value}
                    for of, number in each.items():
                        columns["hyperparameter"][2].append(([name, label, str(of)], number))
        return columns


def numbers(served: ServedModel) -> dict[str, float]:
    """Return the numbers that describe a model now."""
    model = served.model
    values = {
        "rows_learned": float(served.rows),
        "rows_rejected": float(model.rejected_.count),
        "mean_loss": float(model.mean_loss_),
        "pending_labels": float(len(served.pending)),
        "dropped_labels": float(served.pending.dropped),
        "checkpoint_age_seconds": time.time() - served.saved_at,
    }
    return values | ({} if served.pool is None else {"keys": float(len(served.pool))})
