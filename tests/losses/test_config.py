"""Names and options that are wrong are refused, with the nearest right one."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import loss_names, resolve_loss


def refusal(name: str, options: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        resolve_loss(name).parse(options)
    return caught.value.message


def test_every_loss_has_working_defaults() -> None:
    assert {"grpo", "ppo", "gspo", "dapo", "cispo", "sapo", "importance_sampling", "cross_entropy", "dpo"} <= set(
        loss_names()
    )
    for name in loss_names():
        loss = resolve_loss(name)
        assert loss.parse({}).temperature == 1.0
        assert callable(loss.load())


def test_the_documented_dotted_name_is_grpo() -> None:
    assert resolve_loss("arctic_platform.rl.processors.grpo_loss") is resolve_loss("grpo")


@pytest.mark.parametrize("name", ["os.system", "builtins.exec", "gradwire.server.losses.policy.grpo", ""])
def test_a_name_is_never_imported(name: str) -> None:
    with pytest.raises(InvalidArgument, match="no loss"):
        resolve_loss(name)


@pytest.mark.parametrize("name", ["GRPO", "GrPo_Loss"])
def test_letters_may_be_of_another_size_to_be_near(name: str) -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'grpo"):
        resolve_loss(name)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'gspo'"):
        resolve_loss("gpso")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("eps_clp", "eps_clip"),
        ("clip_eps", "eps_clip"),  # not c_clip, though that has more letters in their order
        ("clip_epsilon", "eps_clip"),
        ("epsilon_high", "eps_clip_higher"),  # as another trainer calls it
        ("kl_coef", "kl_loss_coef"),
        ("loss_kl_type", "kl_loss_type"),
    ],
)
def test_an_unknown_key_gets_the_nearest(key: str, nearest: str) -> None:
    text = refusal("grpo", {key: 0.1})
    assert f"loss.config.{key}" in text
    assert f"Did you mean {nearest!r}?" in text


def test_a_key_that_is_like_none_gets_no_guess() -> None:
    assert "Did you mean" not in refusal("grpo", {"xyz": 1})


def test_all_bad_keys_are_named_at_once() -> None:
    with pytest.raises(InvalidArgument) as caught:
        resolve_loss("grpo").parse({"epsclip": 1, "entropy_coeff": "x", "temperature": None})
    assert [v.field for v in caught.value.violations] == [
        "loss.config.epsclip",
        "loss.config.entropy_coeff",
        "loss.config.temperature",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": float("nan")},
        {"c_clip": 1.0},
        {"eps_clip": -0.1},
        {"eps_clip_higher": -1},
        {"behav_imp_weight_cap": 0},
        {"loss_agg_mode": "token_mean"},
        {"kl_loss_type": "k4"},
        {"importance_sampling_level": "seq"},
        {"batch_num_tokens": 0},
        {"batch_num_tokens": 1.5},
        {"use_kl_loss": 1},
        {"entropy_coeff": True},
        {"m2_threshold": 0},
        {"prox_logp_method": "log_linear"},
        {"current_version": -1},
        {"dp_size": 0},
        {"is_weight_clip_max": 0, "use_cispo_loss": True},
        {"sapo_tau_pos": 0, "use_sapo_loss": True},
    ],
    ids=str,
)
def test_values_out_of_range(options: dict[str, Any]) -> None:
    assert next(iter(options)) in refusal("grpo", options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"use_cispo_loss": True, "use_sapo_loss": True}, "two losses; choose one"),
        ({"use_decoupled_loss": True, "use_sapo_loss": True}, "ratio is against the old policy"),
        ({"behav_imp_weight_cap": 2.0, "use_sapo_loss": True}, "ratio is against the old policy"),
        ({"prox_logp_method": "loglinear", "use_sapo_loss": True}, "ratio is against the old policy"),
        ({"m2_threshold": 0.1, "use_sapo_loss": True}, "ratio is against the old policy"),
        ({"m2_threshold": 0.1, "prox_logp_method": "loglinear"}, "from before the pass"),
        ({"c_clip": 3, "use_cispo_loss": True}, "do not clip the loss"),
        ({"is_weight_clip_max": 2.0}, "no effect without use_cispo_loss"),
        ({"sapo_tau_neg": 2.0}, "no effect without use_sapo_loss"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other(options: dict[str, Any], text: str) -> None:
    message = refusal("grpo", options)
    assert text in message
    assert next(iter(options)) in message


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"loss_agg_mode": "token-mean"}, "loss_agg_mode"),
        ({"batch_num_tokens": 5}, "batch_num_tokens"),
        ({"beta": 0}, "beta"),
        ({"label_smoothing": 0.5}, "label_smoothing"),
        ({"loss_type": "hinge"}, "loss_type"),
        ({"label_smoothing": 0.1, "loss_type": "ipo"}, "label_smoothing"),
        ({"eps_clip": 0.2}, "eps_clip"),
    ],
    ids=str,
)
def test_dpo_options(options: dict[str, Any], key: str) -> None:
    assert f"loss.config.{key}" in refusal("dpo", options)


def test_every_key_of_the_documented_grpo_loss_is_known() -> None:
    defaults = {
        "eps_clip": 0.2, "eps_clip_higher": None, "c_clip": None, "behav_imp_weight_cap": None, "m2_threshold": None,
        "importance_sampling_level": "token", "current_version": None, "prox_logp_method": "recompute",
        "use_sapo_loss": False, "sapo_tau_pos": 1.0, "sapo_tau_neg": 1.05, "use_decoupled_loss": False,
        "use_cispo_loss": False, "is_weight_clip_max": None, "loss_agg_mode": "token-mean", "dp_size": None,
        "batch_num_tokens": None, "global_batch_size": None, "entropy_coeff": 0.0, "use_kl_loss": False,
        "kl_loss_coef": 1e-3, "kl_loss_type": "low_var_kl",
    }  # fmt: skip
    found = resolve_loss("arctic_platform.rl.processors.grpo_loss").parse(defaults)
    plain = resolve_loss("grpo").parse({})
    for key, value in defaults.items():
        assert getattr(found, key) == value
        if key != "kl_loss_type":
            assert getattr(plain, key) == value


def test_whole_numbers_arrive_as_doubles() -> None:
    config = resolve_loss("grpo").parse({"batch_num_tokens": 4096.0, "eps_clip": 1, "c_clip": None})
    assert config.batch_num_tokens == 4096
    assert isinstance(config.batch_num_tokens, int)
    assert isinstance(config.eps_clip, float)  # type: ignore[attr-defined]


def test_family_defaults() -> None:
    assert resolve_loss("dapo").parse({}).clip_bounds == (0.8, 1.28)  # type: ignore[attr-defined]
    gspo = resolve_loss("gspo").parse({})
    assert gspo.importance_sampling_level == "sequence"  # type: ignore[attr-defined]
    assert resolve_loss("grpo").parse({"eps_clip": 0.1}).clip_bounds == (0.9, 1.1)  # type: ignore[attr-defined]
