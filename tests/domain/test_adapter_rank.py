"""An adapter of a higher rank than a sampler's slots is refused at its first sync, with what helps."""

from __future__ import annotations

import pytest

from gradwire.server.domain.adapters import check_adapter_sync
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import LoraConfig, TrainingConfig
from gradwire.server.errors import FailedPrecondition
from tests.domain.support import create, new_registry
from tests.fake_engines import FakeEngines


@pytest.mark.parametrize(
    ("rank", "advice"),
    [
        (512, "sync with merge, or make the sampling job with max_lora_rank 512"),
        (513, "sync with merge; no sampler takes an adapter of more than 512"),
    ],
)
async def test_a_rank_beyond_the_slots_names_what_helps(rank: int, advice: str) -> None:
    registry = new_registry(FakeEngines())
    asked = TrainingConfig("tiny", lora=LoraConfig(rank, float(rank))), SamplerConfig("tiny", max_loras=1)
    trainer, sampler = await create(registry, *asked)
    with pytest.raises(FailedPrecondition) as caught:
        check_adapter_sync(trainer, sampler, "a", "alice", lives=registry.holds)
    assert caught.value.reason == "ADAPTER_RANK_TOO_HIGH"
    assert caught.value.message.endswith(f"takes at most max_lora_rank 32: {advice}")
    await registry.shutdown()
