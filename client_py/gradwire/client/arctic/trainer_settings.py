"""DeepSpeed's JSON settings, `training_config` and `ds_worker_config`, as fields of a TrainingJobConfig.

Knows: each key, and what it means here. What would change the result and cannot be done is refused; what only
tunes is noted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from gradwire.client.arctic.settings import Chosen, Settings

_BY_TOKENS = (
    "rows are split by tokens (ds_worker_config.max_token_len), and any number of fwd_bwd calls goes before a step"
)
_ADAM = ("adam", "adamw", "fusedadam", "deepspeedcpuadam")
_SCHEDULES = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
_OFF: tuple[Any, ...] = ({"enabled": False}, {}, False)
_NO_OFFLOAD = (*_OFF, {"device": "none"}, "none")


def trainer_settings(
    ds_config: Mapping[str, Any],
    training_config: Mapping[str, Any] | None,
    ds_worker_config: Mapping[str, Any] | None,
    notes: list[str],
) -> dict[str, Any]:
    """Fields of a TrainingJobConfig; absent ones take the server's defaults."""
    job, optimizer, scheduler = Chosen(), Chosen(), Chosen()
    _deepspeed(Settings(ds_config, "ds_config", notes), job, optimizer, scheduler)
    _training(Settings(training_config, "training_config", notes), job, optimizer, scheduler)
    read_worker_settings(ds_worker_config, job, notes)
    return {
        **job,
        **({"optimizer": dict(optimizer)} if optimizer else {}),
        **({"scheduler": dict(scheduler)} if scheduler else {}),
    }


def _deepspeed(settings: Settings, job: Chosen, optimizer: Chosen, scheduler: Chosen) -> None:
    named = settings.section("optimizer")
    kind = named.take("type", str)
    if kind is not None:
        optimizer.put("name", _optimizer_name(kind, f"{named.where}.type"), f"{named.where}.type")
    parameters = named.section("params")
    _optimizer(parameters, job, optimizer)
    parameters.end()
    named.ignore("updates are fused where they can be", "legacy_fusion")
    named.end()
    _schedule(settings.section("scheduler"), optimizer, scheduler)
    job.put("max_grad_norm", settings.take("gradient_clipping", float), "ds_config.gradient_clipping")
    _precision(settings, job)
    _zero(settings.section("zero_optimization"), job)
    settings.ignore(
        _BY_TOKENS, "gradient_accumulation_steps", "train_micro_batch_size_per_gpu", "train_batch_size", unless=(1,)
    )
    settings.ignore(
        "the server measures and logs by itself",
        "steps_per_print", "wall_clock_breakdown", "dump_state", "flops_profiler", "comms_logger", "memory_breakdown",
        "tensorboard", "wandb", "csv_monitor", "comet", "monitor_config", unless=_OFF,
    )  # fmt: skip
    settings.ignore(
        "ds_worker_config.enable_gradient_checkpointing is what recomputes activations", "activation_checkpointing",
        unless=_OFF,
    )  # fmt: skip
    settings.ignore("the optimizer is known to work", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer")
    settings.refuse(
        "only data-parallel training is offered", "sequence_parallel_size", "tensor_parallel", "pipeline", unless=(1,)
    )
    settings.refuse(
        "it would change what is computed",
        "amp", "sparse_gradients", "gradient_predivide_factor", "prescale_gradients", "curriculum_learning",
        "data_efficiency", "compression_training", "progressive_layer_drop", "eigenvalue", "hybrid_engine",
        "elasticity", "sparse_attention", unless=(*_OFF, 1, 1.0),
    )  # fmt: skip
    settings.refuse("the trainer compiles nothing and tunes nothing", "compile", "autotuning", unless=_OFF)
    settings.end()


def _precision(settings: Settings, job: Chosen) -> None:
    for section, dtype_key in (("bf16", None), ("torch_autocast", "dtype")):
        part = settings.section(section)
        enabled = part.take("enabled", bool)
        dtype = part.take(dtype_key, str, ("bfloat16", "torch.bfloat16")) if dtype_key else None
        part.ignore("master weights and gradients are float32", "master_weights_and_grads", "immediate_grad_update",
                    "check_grad_overflow", "lower_precision_safe_modules")  # fmt: skip
        part.end()
        if enabled or (dtype is not None and enabled is None):
            job.put("dtype", "bfloat16", part.where)
        elif enabled is False and section == "bf16":
            job.put("dtype", "float32", part.where)
    settings.refuse('the trainer computes in "float32" or "bfloat16" (bf16)', "fp16", unless=_OFF)
    settings.refuse(
        "gradients are added up and sent as float32", "communication_data_type", "data_types",
        unless=("fp32", "float32", {"grad_accum_dtype": "fp32"}, {}),
    )  # fmt: skip


def _zero(settings: Settings, job: Chosen) -> None:
    stage = settings.take("stage", int)
    if stage is not None and not 0 <= stage <= 3:
        raise ValueError(f"{settings.where}.stage is {stage}; ZeRO has the stages 0 to 3")
    job.put("zero_stage", stage, f"{settings.where}.stage")
    settings.refuse(
        "nothing is offloaded while it trains; sleep_training gives memory back between iterations",
        "offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_params", unless=_NO_OFFLOAD,
    )  # fmt: skip
    settings.refuse(
        "it would change the weights' precision", "zero_quantized_weights", "zero_quantized_gradients",
        "zero_quantized_nontrainable_weights", unless=_OFF,
    )  # fmt: skip
    settings.ignore(
        "sizes and overlap of communication are the server's",
        "overlap_comm", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions",
        "allgather_bucket_size", "round_robin_gradients", "ignore_unused_parameters", "sub_group_size",
        "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "stage3_gather_16bit_weights_on_model_save", "zero_hpz_partition_size",
        "elastic_checkpoint", "load_from_fp32_weights", "memory_efficient_linear", "use_multi_rank_bucket_allreduce",
    )  # fmt: skip
    settings.end()


def _optimizer_name(kind: str, where: str) -> str:
    lowered = kind.lower()
    if lowered in _ADAM:
        return "adamw"
    if lowered == "sgd":
        return "sgd"
    raise ValueError(f'{where} is {kind!r}; the trainer has "AdamW" (or "Adam", with decoupled decay) and "SGD"')


def _optimizer(settings: Settings, job: Chosen, optimizer: Chosen) -> None:
    where = settings.where
    optimizer.put("learning_rate", settings.take("lr", float), f"{where}.lr")
    optimizer.put("eps", settings.take("eps", float), f"{where}.eps")
    optimizer.put("weight_decay", settings.take("weight_decay", float), f"{where}.weight_decay")
    optimizer.put("momentum", settings.take("momentum", float), f"{where}.momentum")
    betas = settings.take("betas", list | tuple)  # type: ignore[arg-type]
    if betas is not None and len(betas) != 2:
        raise ValueError(f"{where}.betas is {betas!r}; it is two numbers, such as [0.9, 0.999]")
    for number in (1, 2):
        optimizer.put(f"beta{number}", betas[number - 1] if betas else None, f"{where}.betas")
        optimizer.put(f"beta{number}", settings.take(f"beta{number}", float), f"{where}.beta{number}")
    for name in ("gradient_clipping", "max_grad_norm"):
        job.put("max_grad_norm", settings.take(name, float), f"{where}.{name}")
    settings.refuse("weight decay is decoupled (AdamW)", "adam_w_mode", unless=(True,))
    settings.refuse("it is not AdamW's", "amsgrad", "nesterov", "dampening", unless=(False, 0))
    settings.ignore("the server chooses the implementation", "torch_adam", "fused", "foreach", "bias_correction",
                    unless=(True,))  # fmt: skip


def _schedule(settings: Settings, optimizer: Chosen, scheduler: Chosen) -> None:
    kind = settings.take("type", str, _SCHEDULES)
    part = settings.section("params")
    where = part.where
    scheduler.put("name", None if kind is None else _SCHEDULES[kind], f"{settings.where}.type")
    optimizer.put("learning_rate", part.take("warmup_max_lr", float), f"{where}.warmup_max_lr")
    scheduler.put("warmup_steps", part.take("warmup_num_steps", int), f"{where}.warmup_num_steps")
    scheduler.put("total_steps", part.take("total_num_steps", int), f"{where}.total_num_steps")
    scheduler.put("min_lr_ratio", part.take("cos_min_ratio", float), f"{where}.cos_min_ratio")
    part.refuse("a warm-up begins at 0", "warmup_min_lr", "warmup_min_ratio", unless=(0, 0.0))
    shape = part.take("warmup_type", str, ("linear", "log"))
    if shape == "log" or (shape is None and kind in ("WarmupLR", "WarmupDecayLR")):
        # DeepSpeed's own default for these two is "log".
        part.notes.append(f'{where}.warmup_type "log" has no effect: a warm-up is linear')
    part.refuse("a job begins at its first step; load_checkpoint continues one", "last_batch_iteration", unless=(-1,))
    part.end()
    settings.end()


def _training(settings: Settings, job: Chosen, optimizer: Chosen, scheduler: Chosen) -> None:
    part = settings.section("optimizer")
    for name in ("name", "type"):
        kind = part.take(name, str)
        optimizer.put("name", kind and _optimizer_name(kind, f"{part.where}.{name}"), f"{part.where}.{name}")
    _optimizer(part, job, optimizer)
    part.end()
    job.put("max_grad_norm", settings.take("gradient_clipping", float), "training_config.gradient_clipping")
    settings.ignore(_BY_TOKENS, "gradient_accumulation_steps", unless=(1,))
    horizon = settings.take("training_horizon", int)
    _lr_scheduler(settings.section("lr_scheduler"), horizon, scheduler)
    job.put("loss", settings.take("loss", str), "training_config.loss")
    for name in ("loss_config", "lora"):
        job.put(name, settings.take(name, dict), f"training_config.{name}")
    settings.end()


def _lr_scheduler(settings: Settings, horizon: int | None, scheduler: Chosen) -> None:
    where = settings.where
    kind = settings.take("type", str, ("constant", "linear", "cosine"))
    scheduler.put("name", kind, f"{where}.type")
    steps, ratio = settings.take("warmup_steps", int), settings.take("warmup_ratio", float)
    if ratio is not None:
        if not 0 <= ratio <= 1:
            raise ValueError(f"{where}.warmup_ratio is {ratio}; it is a part of training_horizon, 0 to 1")
        if ratio and horizon is None:
            raise ValueError(f"{where}.warmup_ratio is a part of training_config.training_horizon; give that too")
        # A number of steps that is given wins over a ratio of 0, which is the peer's default.
        steps = math.ceil(ratio * (horizon or 0)) if steps is None or ratio else steps
    scheduler.put("warmup_steps", steps, f"{where}.warmup_steps")
    scheduler.put("total_steps", horizon, "training_config.training_horizon")
    scheduler.put("min_lr_ratio", settings.take("min_lr_ratio", float), f"{where}.min_lr_ratio")
    if kind in ("linear", "cosine") and "total_steps" not in scheduler:
        raise ValueError(f"{where}.type {kind!r} ends at training_config.training_horizon steps; give that")
    settings.end()


class WorkerSettings(NamedTuple):
    """What a client itself needs of ds_worker_config."""

    temperature: float | None


def read_worker_settings(values: Mapping[str, Any] | None, job: Chosen, notes: list[str]) -> WorkerSettings:
    """Puts what belongs to the job into `job`."""
    settings = Settings(values, "ds_worker_config", notes)
    where = settings.where
    job.put("max_tokens_per_micro_batch", settings.take("max_token_len", int), f"{where}.max_token_len")
    job.put("gradient_checkpointing", settings.take("enable_gradient_checkpointing", bool),
            f"{where}.enable_gradient_checkpointing")  # fmt: skip
    job.put("threads", settings.take("threads", int), f"{where}.threads")
    temperature = settings.take("temperature", float)
    if temperature is not None and not 0 < temperature <= 100:
        raise ValueError(f"{where}.temperature is {temperature}; it is above 0 and at most 100")
    settings.ignore("rows are packed with attention that stays inside each row, on every backend",
                    "attn_implementation", unless=("sdpa",))  # fmt: skip
    settings.ignore("rows are always packed without their padding", "use_unpad", unless=(True,))
    settings.ignore("bf16 in ds_config says in which type the trainer computes", "use_autocast", unless=(False,))
    settings.ignore("results are the same without it", "use_liger", "zorro_train_enable", unless=(False,))
    settings.ignore("rows say their own lengths and groups", "response_len", "rollout_n")
    settings.take("logits_optimization", str, ("none", "memory", "compute"))
    settings.ignore("logits are computed only where the mask counts", "logits_optimization_peak_mem_size_in_gib")
    settings.end()
    return WorkerSettings(temperature)
