"""Real engines through the HTTP door: some of the tests of gRPC, with a client that calls over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradwire.client import Client
from tests.e2e.test_sampling import (
    test_cancel_frees_the_slot,
    test_deadline_frees_the_slot,
    test_errors_name_the_field_and_the_next_call_works,
    test_first_token_comes_at_once_and_indexes_have_no_gap,
    test_stream_deltas_join_to_the_unary_text,
)
from tests.e2e.test_training import test_a_large_batch_goes_in_chunks
from tests.serving import ServerProcess

__all__ = [
    "test_a_large_batch_goes_in_chunks",
    "test_cancel_frees_the_slot",
    "test_deadline_frees_the_slot",
    "test_errors_name_the_field_and_the_next_call_works",
    "test_first_token_comes_at_once_and_indexes_have_no_gap",
    "test_stream_deltas_join_to_the_unary_text",
]


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Client]:
    """In place of the client over gRPC."""
    with Client(f"http://{server.doors['http']}", timeout=120.0) as connected:
        connected.wait_ready()
        yield connected
