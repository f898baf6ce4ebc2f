"""What the server is and can do, and who may use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gradwire.client.types.shown import Brief
from gradwire.client.types.weights import WeightTransport


class Scope(StrEnum):
    """What a token may do."""

    UNSPECIFIED = "unspecified"
    INFERENCE = "inference"
    """Sampling, deployed agents, sessions."""
    TRAINING = "training"
    """Training, weights, jobs."""
    ADMIN = "admin"
    """Tokens; to deploy and undeploy."""


class TokenKind(StrEnum):
    """Kind of a token."""

    UNSPECIFIED = "unspecified"
    PROFILE = "profile"
    """Of one person."""
    ORGANIZATION = "organization"
    """Of an organisation that acts for users of its own."""


@dataclass(frozen=True, slots=True, repr=False)
class LossInfo(Brief):
    """A loss that the server knows."""

    name: str
    aliases: tuple[str, ...]
    config_keys: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True, repr=False)
class Capabilities(Brief):
    """What the server is and can do."""

    version: str
    services: tuple[str, ...]
    """Full names."""
    device: str
    """"cpu" or "cuda"."""
    max_message_bytes: int
    max_upload_bytes: int
    losses: tuple[LossInfo, ...]
    weight_transports: tuple[WeightTransport, ...]
    shared_memory: bool
    model: str
    """Empty when the server was started with none."""
    engines: tuple[str, ...]
    """Like "vllm 0.32.0"."""
    http_url: str = ""
    """Base of its HTTP door, with the host that this client calls the server by; empty when it has none."""


@dataclass(frozen=True, slots=True, repr=False)
class Token(Brief):
    """A token, without its secret."""

    token_id: str
    description: str
    kind: TokenKind
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: datetime | None
    expires_at: datetime | None
    """None: never."""
    revoked_at: datetime | None
    """None: it was not."""
    user: str
    """Person within the tenant. Empty: the token itself, or whom an organisation's calls name."""


@dataclass(frozen=True, slots=True, repr=False)
class CreatedToken(Brief):
    """A token and its secret, which is shown only once and kept out of the repr."""

    token: Token
    secret: str = field(repr=False)
