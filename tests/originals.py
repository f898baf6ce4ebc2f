"""The weights with which the shared server's sampler began, and how they come back."""

from __future__ import annotations

from gradwire.client import Client, Job


class Originals:
    """What the server's own sampler held when the run began."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = client.weights.get_version()
        self._checksums = client.weights.get_checksums().checksums

    def put_back(self) -> None:
        """Undo the syncs of a test: the same weights again, as a newer version."""
        if self._client.weights.get_version() == self._version:  # the moment of the last sync, too
            return
        if self._client.weights.get_checksums().checksums != self._checksums:
            fresh = self._client.jobs.create(training={"threads": 1}).training
            assert fresh is not None
            sync_originals(self._client, fresh)
            self._client.jobs.destroy(fresh)
            assert self._client.weights.get_checksums().checksums == self._checksums
        self._version = self._client.weights.get_version()


def sync_originals(client: Client, fresh: Job) -> None:
    """Carries a trainer's weights, as it began, into the sampler, which may be at any version."""
    rows = {"input_ids": [[1, 2, 3]], "advantages": [0.0]}
    # A trainer at version 0 cannot say that it is newer: steps of rate 0, with gradients of 0 so that the optimizer
    # remembers nothing of them, raise the version and change nothing.
    while client.weights.get_version(fresh).weight_version <= client.weights.get_version().weight_version:
        client.training.fwd_bwd(fresh, rows, loss="grpo")
        client.training.step(fresh, learning_rate=0.0)
    client.weights.sync(fresh)
