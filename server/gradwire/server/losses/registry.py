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
from gradwire.server.losses import family as c
from gradwire.server.losses.config import LossConfig, parse_config
from gradwire.server.losses.contract import LossPluginError, check_installed
from gradwire.server.losses.names import column_name, did_you_mean
from gradwire.server.losses.preference_config import CrossEntropyConfig, DpoConfig

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
    batch that must be there, named as LossInputs or as a request names them; `fractional_mask` allows
    weights other than 0 and 1 in the mask. The rows of a batch are taken in groups of `rows_together`
    consecutive ones, which always meet in one call of the function, and each of which has a scored token.
    """

    name: str
    config_type: type[LossConfig]
    load: Callable[[], LossFunction]
    columns: frozenset[str] = frozenset()
    fractional_mask: bool = False
    summary: str = ""
    source: str = ""  # where the formula is from
    rows_together: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for a name in `columns` that is none, with the nearest."""
        object.__setattr__(self, "columns", frozenset(map(column_name, self.columns)))

    def parse(self, values: Mapping[str, Any], *, path: str = "loss.config") -> LossConfig:
        """The configuration from a request's mapping; raises InvalidArgument naming each bad key."""
        return parse_config(self.config_type, values, path=path)


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
        where = f"entry point {entry.name!r} of group {ENTRY_POINT_GROUP}"
        try:
            loss = entry.load()
            if not isinstance(loss, Loss):
                raise ValueError(f"is a {type(loss).__name__}, not a Loss")
            check_installed(loss)
        except Exception as error:
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise LossPluginError(f"{where}: {text}") from error
        if loss.name in losses or loss.name in ALIASES:
            raise LossPluginError(f"{where} would replace the loss {loss.name!r}; give it another name")
        losses[loss.name] = loss
    return losses


def _built_in() -> list[Loss]:
    advantages = frozenset({"advantages"})
    return [
        Loss(
            "grpo",
            c.GrpoConfig,
            _late("policy", "grpo"),
            advantages,
            summary="PPO's clip on group advantages",
            source="arXiv 1707.06347, 2402.03300",
        ),
        Loss(
            "ppo",
            c.PpoConfig,
            _late("policy", "grpo"),
            advantages,
            summary="grpo, by its older name",
            source="arXiv 1707.06347",
        ),
        Loss(
            "dapo",
            c.DapoConfig,
            _late("policy", "grpo"),
            advantages,
            summary="grpo with a higher upper clip",
            source="arXiv 2503.14476",
        ),
        Loss(
            "gspo",
            c.GspoConfig,
            _late("policy", "grpo"),
            advantages,
            summary="grpo with ratios of whole sequences",
            source="arXiv 2507.18071",
        ),
        Loss(
            "cispo",
            c.CispoConfig,
            _late("policy", "cispo"),
            advantages,
            summary="clipped weights, unclipped update",
            source="arXiv 2506.13585",
        ),
        Loss(
            "sapo",
            c.SapoConfig,
            _late("policy", "sapo"),
            advantages,
            summary="a sigmoid in place of the clip",
            source="arXiv 2511.20347",
        ),
        Loss(
            "importance_sampling",
            c.PolicyLossConfig,
            _late("policy", "importance_sampling"),
            advantages,
            summary="-A r, unclipped",
            source="arXiv 2505.24298 for the behaviour weight",
        ),
        Loss(
            "cross_entropy",
            CrossEntropyConfig,
            _late("cross_entropy", "cross_entropy"),
            fractional_mask=True,
            summary="-log p of the row's own tokens",
        ),
        Loss(
            "dpo",
            DpoConfig,
            _late("preference", "dpo"),
            rows_together=2,
            summary="row 2k preferred to row 2k + 1",
            source="arXiv 2305.18290, 2310.12036",
        ),
    ]


def _late(module: str, function: str) -> Callable[[], LossFunction]:
    def load() -> LossFunction:
        loaded: LossFunction = getattr(import_module(f"gradwire.server.losses.{module}"), function)
        return loaded

    return load
