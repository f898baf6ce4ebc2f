"""Makes the real engines. Importing them costs seconds, so it happens when the first one is made."""

from __future__ import annotations

from gradwire.server.engines.base import LogProbEngine, SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import DEEPSPEED, LogProbConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.packages import ENGINES, require


class RealEngines:
    """vLLM for sampling, DeepSpeed for training, either for log-probs. FailedPrecondition where it is not installed."""

    def sampler(self, config: SamplerConfig) -> SamplerEngine:
        """A vLLM engine that has not started."""
        _require("vllm")
        from gradwire.server.engines.vllm.engine import VllmSampler

        return VllmSampler(config)

    def trainer(self, config: TrainingConfig) -> TrainingEngine:
        """A group of DeepSpeed workers that have not started."""
        _require("deepspeed")
        from gradwire.server.engines.deepspeed.group import DeepSpeedTrainer

        return DeepSpeedTrainer(config)

    def log_prob(self, config: LogProbConfig) -> LogProbEngine:
        """A scoring engine that has not started."""
        _require("deepspeed" if config.engine == DEEPSPEED else "vllm")
        if config.engine == DEEPSPEED:
            from gradwire.server.engines.deepspeed.scoring import DeepSpeedScorer

            return DeepSpeedScorer(config)
        from gradwire.server.engines.vllm.scoring import VllmScorer

        return VllmScorer(config)


def _require(engine: str) -> None:
    require(engine, ENGINES, reason="ENGINE_NOT_INSTALLED")
