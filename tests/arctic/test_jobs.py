"""What becomes of DeepSpeed's, vLLM's and the peer's own settings: mapped, noted or refused, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.client._convert.jobs import create_to_proto
from gradwire.client.arctic import ArcticRLClientConfig
from gradwire.client.arctic.jobs import JobPlan, default_temperature, plan_jobs


def plan(**fields: Any) -> JobPlan:
    base = {"model_name": "tiny", "training_gpus": 2, "sampling_gpus": 2, "log_prob_gpus": 1}
    return plan_jobs(ArcticRLClientConfig(**{**base, **fields}))


def training(**fields: Any) -> dict[str, Any]:
    made = plan(**fields).training
    assert made is not None
    return made


def test_a_bare_configuration_makes_the_three_jobs_with_the_servers_defaults() -> None:
    made = plan()
    assert made == JobPlan(
        {"model": "tiny", "num_workers": 2, "seed": 42},
        {"model": "tiny", "seed": 42, "data_parallel_size": 2},
        {"model": "tiny", "engine": "vllm", "num_workers": 1},
        (),
    )
    only = plan(training_gpus=0, log_prob_gpus=0)
    assert only.training is None and only.log_prob is None


def test_deepspeeds_settings() -> None:
    made = plan(
        ds_config={
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 1e-4, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0},
            },
            "scheduler": {
                "type": "WarmupCosineLR",
                "params": {"warmup_num_steps": 5, "total_num_steps": 50, "cos_min_ratio": 0.1, "warmup_type": "linear"},
            },
            "gradient_clipping": 0.5,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "none"}},
            "gradient_accumulation_steps": 4,
            "train_micro_batch_size_per_gpu": "auto",
            "steps_per_print": 10,
        }
    )
    assert made.training == {
        "model": "tiny",
        "num_workers": 2,
        "seed": 42,
        "optimizer": {
            "name": "adamw", "learning_rate": 1e-4, "beta1": 0.8, "beta2": 0.95, "eps": 1e-7, "weight_decay": 0.0,
        },
        "scheduler": {"name": "cosine", "warmup_steps": 5, "total_steps": 50, "min_lr_ratio": 0.1},
        "max_grad_norm": 0.5,
        "dtype": "bfloat16",
        "zero_stage": 2,
    }  # fmt: skip
    assert [note.partition(" has no effect")[0] for note in made.notes] == [
        "ds_config.zero_optimization.overlap_comm",
        "ds_config.gradient_accumulation_steps",
        "ds_config.steps_per_print",
    ]


def test_training_config_and_worker_config() -> None:
    made = training(
        training_config={
            "optimizer": {"lr": 2e-5, "beta1": 0.9, "beta2": 0.98, "max_grad_norm": 1.0},
            "lr_scheduler": {"type": "cosine", "warmup_ratio": 0.1, "min_lr_ratio": 0.2},
            "training_horizon": 95,
            "loss": "gspo",
            "loss_config": {"eps_clip": 0.1},
        },
        ds_worker_config={
            "max_token_len": 1024,
            "enable_gradient_checkpointing": True,
            "attn_implementation": "sdpa",
            "temperature": 0.7,
            "logits_optimization": "memory",
        },
    )
    assert made["scheduler"] == {"name": "cosine", "warmup_steps": 10, "total_steps": 95, "min_lr_ratio": 0.2}
    assert made["optimizer"] == {"learning_rate": 2e-5, "beta1": 0.9, "beta2": 0.98}
    assert (made["max_grad_norm"], made["loss"], made["loss_config"]) == (1.0, "gspo", {"eps_clip": 0.1})
    assert (made["max_tokens_per_micro_batch"], made["gradient_checkpointing"]) == (1024, True)
    config = ArcticRLClientConfig(model_name="m", training_gpus=1, ds_worker_config={"temperature": 0.7})
    assert default_temperature(config) == 0.7


def test_samplers_settings() -> None:
    made = plan(
        sampling_gpus=4,
        log_prob_gpus=2,
        vllm_config={
            "tensor_parallel_size": 2, "max_model_len": 512, "dtype": "half", "max_logprobs": 5, "seed": 7,
            "swap_space": 4, "trust_remote_code": False,
        },
    )  # fmt: skip
    assert made.sampling == {
        "model": "tiny", "seed": 7, "tensor_parallel_size": 2, "data_parallel_size": 2, "max_model_len": 512,
        "dtype": "float16", "max_log_probs": 5,
    }  # fmt: skip
    assert made.log_prob == {
        "model": "tiny", "engine": "vllm", "num_workers": 1, "tensor_parallel_size": 2, "max_model_len": 512,
        "dtype": "float16", "max_log_probs": 5,
    }  # fmt: skip
    assert [note.split()[0] for note in made.notes] == ["vllm_config.swap_space"]


def test_where_an_adapter_is_trained_the_sampler_has_a_slot_for_it() -> None:
    lora = {"training_config": {"lora": {"rank": 4, "alpha": 8}}}
    for settings, slots in (
        (None, {"max_loras": 1, "max_lora_rank": 4}),
        ({"enable_lora": True, "max_lora_rank": 16}, {"max_loras": 1, "max_lora_rank": 16}),
        ({"max_loras": 3}, {"max_loras": 3, "max_lora_rank": 4}),
        ({"enable_lora": False}, {"max_loras": 0, "max_lora_rank": 4}),
    ):
        made = plan(vllm_config=settings, **lora)
        assert made.sampling == {"model": "tiny", "seed": 42, "data_parallel_size": 2, **slots}
        message = create_to_proto(made.training, made.sampling, None, None, "id")
        assert (message.training.lora.rank, message.sampling.max_loras) == (4, slots["max_loras"])
    assert plan(training_gpus=0, **lora).sampling == plan().sampling  # its weights are of another's training


def test_every_field_of_a_plan_is_one_of_the_contract() -> None:
    made = plan(
        ds_config={"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}},
        ds_worker_config={"threads": 2},
        log_prob_engine="deepspeed",
        log_prob_ds_config={"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}},
    )
    message = create_to_proto(made.training, made.sampling, made.log_prob, None, "id")
    assert message.training.optimizer.momentum == 0.9
    assert (message.log_prob.dtype, message.log_prob.threads) == ("bfloat16", 2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ds_config": {"optimiser": {}}}, "did you mean 'optimizer'"),
        ({"ds_config": {"optimizer": {"type": "Lion"}}}, 'has "AdamW"'),
        ({"ds_config": {"optimizer": {"params": {"learning_rate": 1}}}}, "key 'learning_rate' is not known"),
        ({"ds_config": {"optimizer": {"params": {"adam_w_mode": False}}}}, "weight decay is decoupled"),
        ({"ds_config": {"optimizer": {"params": {"lr": "fast"}}}}, "it is a number"),
        ({"ds_config": {"optimizer": {"params": {"betas": [0.9]}}}}, "two numbers"),
        ({"ds_config": {"scheduler": {"type": "OneCycle"}}}, "'OneCycle' is not known"),
        ({"ds_config": {"scheduler": {"params": {"warmup_min_lr": 0.1}}}}, "a warm-up begins at 0"),
        ({"ds_config": {"fp16": {"enabled": True}}}, "cannot be done here"),
        ({"ds_config": {"zero_optimization": {"stage": 4}}}, "stages 0 to 3"),
        ({"ds_config": {"zero_optimization": {"offload_param": {"device": "cpu"}}}}, "nothing is offloaded"),
        ({"ds_config": {"sequence_parallel_size": 2}}, "only data-parallel"),
        (
            {"ds_config": {"gradient_clipping": 1.0}, "training_config": {"gradient_clipping": 0.5}},
            "say it once",
        ),
        ({"training_config": {"lr_scheduler": {"type": "cosin"}}}, "did you mean 'cosine'"),
        ({"training_config": {"lr_scheduler": {"type": "cosine"}}}, "give that"),
        ({"training_config": {"lr_scheduler": {"warmup_ratio": 0.1}}}, "training_horizon"),
        ({"ds_worker_config": {"max_token_length": 8}}, "did you mean 'max_token_len'"),
        ({"ds_worker_config": {"temperature": 0}}, "above 0"),
        ({"vllm_config": {"max_models_len": 8}}, "did you mean 'max_model_len'"),
        ({"vllm_config": {"quantization": "fp8"}}, "cannot be done here"),
        ({"vllm_config": {"tensor_parallel_size": 3}}, "does not divide"),
        ({"vllm_config": {"tensor_parallel_size": 2}}, "log_prob_gpus is 1"),
        ({"vllm_config": {"max_num_seqs": 0}}, "at least 1"),
        ({"vllm_config": {"enable_lora": False, "max_loras": 1}}, "say one of them"),
        ({"vllm_config": {"speculative_config": {"model": "x"}}}, "draft no tokens"),
        ({"log_prob_ds_config": {"bf16": {"enabled": True}}}, 'log_prob_engine="deepspeed"'),
        ({"arctic_inference_config": {"speculative_decoding": {"model": "x"}}}, "draft no tokens"),
        ({"arctic_inference_config": {"zorro": {}}}, "did you mean 'zorro_inference'"),
    ],
)
def test_what_cannot_be_done_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan(**fields)


def test_a_typo_in_the_settings_of_a_job_that_is_not_made_is_found_too() -> None:
    with pytest.raises(ValueError, match="did you mean 'max_model_len'"):
        plan(sampling_gpus=0, vllm_config={"max_models_len": 8})
