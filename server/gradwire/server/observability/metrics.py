"""Prometheus metrics of the calls. Names follow OpenTelemetry's RPC conventions."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


class CallMetrics:
    """Counters of one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._active = Gauge("rpc_server_active_calls", "Calls being served", ["rpc_method"], registry=registry)
        self._duration = Histogram(
            "rpc_server_call_duration_seconds", "Calls by method and status",
            ["rpc_method", "rpc_response_status_code"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        # Looking a label up takes longer than counting.
        self._active_of = lru_cache(1024)(self._active.labels)
        self._duration_of = lru_cache(4096)(self._duration.labels)
        self.sampled_tokens = Counter("gradwire_sampled_tokens", "Tokens sampled", registry=registry)
        self.trained_tokens = Counter("gradwire_trained_tokens", "Tokens run forward and backward", registry=registry)
        self.optimizer_steps = Counter("gradwire_optimizer_steps", "Optimizer steps", registry=registry)
        self.auth_failures = Counter(
            "gradwire_auth_failures", "Callers that were refused, by reason", ["reason"], registry=registry
        )

        self._ended_rollouts = Counter(
            "gradwire_ended_rollouts", "Rollouts that ended, by outcome", ["outcome"], registry=registry
        )
        self._rollout_rows = Counter(
            "gradwire_rollout_rows",
            "Training rows that were collected, by why they begin",
            ["start"],
            registry=registry,
        )
        self.rollouts = Gauge("gradwire_rollouts", "Rollouts that are held, open and ended", registry=registry)
        self.rollout_bytes = Gauge("gradwire_rollout_bytes", "Bytes that rollouts hold", registry=registry)

    def rollout_ended(self, outcome: str) -> None:
        """A rollout ended."""
        self._ended_rollouts.labels(outcome).inc()

    def row_collected(self, start: str) -> None:
        """A training row was made for a collector."""
        self._rollout_rows.labels(start).inc()

    def begin(self, method: str) -> None:
        """A call began."""
        self._active_of(method).inc()

    def end(self, method: str, code: str, seconds: float) -> None:
        """A call ended."""
        self._active_of(method).dec()
        self._duration_of(method, code).observe(seconds)
