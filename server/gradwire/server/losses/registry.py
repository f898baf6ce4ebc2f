"""Losses by name. A name in a request is looked up here; it is never imported.

Built-in losses, aliases, and what the operator installed under the entry-point group `gradwire.losses`
(each entry point is a `Loss`). Torch is imported only when a loss is first computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import config as c
from gradwire.server.losses.names import did_you_mean

if TYPE_CHECKING:
    from gradwire.server.losses.inputs import LossInputs, LossOutput
    from gradwire.server.losses.normalizer import LossNormalizer

LossFunction = Callable[["LossInputs", Any, "LossNormalizer"], "LossOutput"]

ENTRY_POINT_GROUP = "gradwire.losses"

ALIASES = {
    "arctic_platform.rl.processors.grpo_loss": "grpo",
    "grpo_loss": "grpo",
    "ap_grpo": "grpo",
    "causal_cross_entropy": "cross_entropy",
    "sft": "cross_entropy",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss: its name, its configuration's type, and how it is computed.

    `load` returns the function; it is called where torch may be imported. `columns` are those of the
    batch that must be there; `fractional_mask` allows weights other than 0 and 1 in the mask.
    """

    name: str
    config_type: type[c.LossConfig]
    load: Callable[[], LossFunction]
    columns: frozenset[str] = frozenset()
    fractional_mask: bool = False
    summary: str = ""

    def parse(self, values: Mapping[str, Any], *, path: str = "loss.config") -> c.LossConfig:
        """The configuration from a request's mapping; raises InvalidArgument naming each bad key."""
        return c.parse_config(self.config_type, values, path=path)


def resolve_loss(name: str, *, path: str = "loss.name") -> Loss:
    """The loss of this name or alias; raises InvalidArgument that names the nearest known one."""
    known = _registry()
    loss = known.get(ALIASES.get(name, name))
    if loss is None:
        hint = did_you_mean(name, [*known, *ALIASES])
        raise InvalidArgument.at(
            path, f"no loss {name!r}.{hint} Losses: {', '.join(sorted(known))}", reason="LOSS_UNKNOWN"
        )
    return loss


def loss_names() -> list[str]:
    """Names of all losses, built in and installed, without aliases."""
    return sorted(_registry())


@cache
def _registry() -> dict[str, Loss]:
    losses = {loss.name: loss for loss in _built_in()}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        loss = entry.load()
        if not isinstance(loss, Loss):
            raise TypeError(
                f"entry point {entry.name!r} of group {ENTRY_POINT_GROUP} is a {type(loss).__name__}, not a Loss"
            )
        if loss.name in losses or loss.name in ALIASES:
            raise ValueError(f"entry point {entry.name!r} would replace the loss {loss.name!r}; give it another name")
        losses[loss.name] = loss
    return losses


def _built_in() -> list[Loss]:
    advantages = frozenset({"advantages"})
    return [
        Loss("grpo", c.GrpoConfig, _late("policy", "grpo"), advantages, summary="PPO clip on group advantages"),
        Loss("ppo", c.PpoConfig, _late("policy", "grpo"), advantages, summary="grpo, by its older name"),
        Loss("dapo", c.DapoConfig, _late("policy", "grpo"), advantages, summary="grpo with a higher upper clip"),
        Loss("gspo", c.GspoConfig, _late("policy", "grpo"), advantages, summary="grpo with sequence-level ratios"),
        Loss("cispo", c.CispoConfig, _late("policy", "cispo"), advantages, summary="clipped weights, unclipped update"),
        Loss(
            "sapo",
            c.SapoConfig,
            _late("policy", "sapo"),
            advantages | {"old_log_probs"},
            summary="a sigmoid in place of the clip",
        ),
        Loss(
            "importance_sampling",
            c.PolicyLossConfig,
            _late("policy", "importance_sampling"),
            advantages,
            summary="-A r, unclipped",
        ),
        Loss(
            "cross_entropy",
            c.CrossEntropyConfig,
            _late("cross_entropy", "cross_entropy"),
            fractional_mask=True,
            summary="-log p of the row's tokens",
        ),
    ]


def _late(module: str, function: str) -> Callable[[], LossFunction]:
    def load() -> LossFunction:
        loaded: LossFunction = getattr(import_module(f"gradwire.server.losses.{module}"), function)
        return loaded

    return load
