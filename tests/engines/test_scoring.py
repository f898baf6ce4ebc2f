"""What is refused before a log-prob engine sees it."""

from __future__ import annotations

import numpy as np
import pytest

from gradwire.server.engines.scoring import LogProbConfig, check_rows, check_widths, refuse_foreign_fields
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.engines.vllm.settings import check_kv_cache_fits, machine_memory
from gradwire.server.errors import InvalidArgument


@pytest.mark.parametrize(
    ("row", "match"),
    [([], "empty"), ([0] * 5, "at most 4"), ([0, 9], "token 1 is 9"), ([-1], "token 0 is -1")],
)
def test_rows(row: list[int], match: str) -> None:
    good = np.array([1, 8], np.int32)
    check_rows([good], vocab_size=9, longest=4)
    with pytest.raises(InvalidArgument, match=match) as refused:
        check_rows([good, np.array(row, np.int32)], vocab_size=9, longest=4)
    assert [violation.field for violation in refused.value.violations] == ["rows[1]"]


def test_the_longest_row_of_a_batch_is_named() -> None:
    batch = TrainingBatch(np.zeros(9, np.int32), np.array([0, 2, 7, 9]), 5)
    check_widths(batch, 5)
    with pytest.raises(InvalidArgument, match="row 1 has 5 tokens"):
        check_widths(batch, 4)


def test_settings_of_the_other_engine() -> None:
    refuse_foreign_fields(LogProbConfig("m", threads=2), ("kv_cache_bytes",), "vllm")
    with pytest.raises(InvalidArgument, match=r"config\.kv_cache_bytes: is a setting of the vllm engine"):
        refuse_foreign_fields(LogProbConfig("m", kv_cache_bytes=1), ("kv_cache_bytes",), "vllm")


def test_a_cache_that_no_such_machine_holds() -> None:
    assert 1 << 28 < machine_memory() < 1 << 50
    check_kv_cache_fits(100, 100)
    with pytest.raises(InvalidArgument, match="has 100 bytes of memory") as refused:
        check_kv_cache_fits(101, 100)
    assert refused.value.reason == "NOT_ENOUGH_MEMORY"
