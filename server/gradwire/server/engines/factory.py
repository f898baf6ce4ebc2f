"""Makes the real engines. Importing them costs seconds, so it happens when the first one is made."""

from __future__ import annotations

from gradwire.server.engines.base import LogProbEngine, SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import DEEPSPEED, LogProbConfig
from gradwire.server.engines.training import TrainingConfig


class RealEngines:
    """vLLM for sampling, DeepSpeed for training, either for log-probs."""

    def sampler(self, config: SamplerConfig) -> SamplerEngine:
        """A vLLM engine that has not started."""
        from gradwire.server.engines.vllm.engine import VllmSampler

        return VllmSampler(config)

    def trainer(self, config: TrainingConfig) -> TrainingEngine:
        """A group of DeepSpeed workers that have not started."""
        from gradwire.server.engines.deepspeed.group import DeepSpeedTrainer

        return DeepSpeedTrainer(config)

    def log_prob(self, config: LogProbConfig) -> LogProbEngine:
        """A scoring engine that has not started."""
        if config.engine == DEEPSPEED:
            from gradwire.server.engines.deepspeed.scoring import DeepSpeedScorer

            return DeepSpeedScorer(config)
        from gradwire.server.engines.vllm.scoring import VllmScorer

        return VllmScorer(config)
