"""Settings of the server: a TOML file, then the environment (GRADWIRE_*), then flags; the last wins.

An unknown key is an error wherever it stands: a misspelt limit must not be a missing limit.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from gradwire.server.addresses import is_loopback, split_address
from gradwire.server.bad_settings import ENV_PREFIX, SettingsError, Sources, explained, no_setting
from gradwire.server.storage.database import database_url

# Set for other parts: the client's address and token, the model cache, the set-up, the samplers' processes.
FOREIGN_ENV = frozenset(
    f"{ENV_PREFIX}{name}" for name in ("ADDRESS", "TOKEN", "CACHE", "EXTRAS", "SPILL_DIR", "FRONT_PID")
)
MIB = 1 << 20
DEPLOYMENT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsSettings(_Strict):
    """PEM files. With `client_ca` callers must show a certificate that it signed (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class TokenSettings(_Strict):
    """A token that callers may send, by the SHA-256 of its secret (hex)."""

    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    tenant: str = Field(default="local", min_length=1)
    scopes: frozenset[str] = frozenset({"INFERENCE", "TRAINING"})

    @field_validator("scopes")
    @classmethod
    def _known(cls, scopes: frozenset[str]) -> frozenset[str]:
        known = {"INFERENCE", "TRAINING", "ADMIN"}
        scopes = frozenset(scope.upper() for scope in scopes)  # the command line writes them small
        if scopes - known:
            raise ValueError(f"unknown scopes {sorted(scopes - known)}; there are {sorted(known)}")
        return scopes


class SamplerSettings(_Strict):
    """Of the sampling job that the server is started with. 0: the engine decides."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int = Field(default=0, ge=0)
    max_num_seqs: int = Field(default=0, ge=0)
    max_num_batched_tokens: int = Field(default=0, ge=0)
    kv_cache_bytes: int = Field(default=0, ge=0)
    gpu_memory_utilization: float = Field(default=0.0, ge=0, le=1)
    tensor_parallel_size: int = Field(default=1, ge=1)
    data_parallel_size: int = Field(default=1, ge=1)
    max_log_probs: int = Field(default=20, ge=0, le=1024)
    enable_prefix_caching: bool = True
    enforce_eager: bool | None = None
    seed: int = Field(default=0, ge=0)
    tool_call_parser: str = "hermes"  # how the model writes tool calls, by vLLM's name; "": it does not
    max_loras: int = Field(default=0, ge=0, le=256)
    max_lora_rank: int = Field(default=32, ge=1, le=512)


class ReplyDefaults(_Strict):
    """What requests to a deployed language model get that do not say."""

    max_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=2**31 - 1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**53 - 1)
    stop: tuple[str, ...] = Field(default=(), max_length=64)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=100)


class DeploymentSettings(_Strict):
    """An agent that is deployed at each start: a bundle, or the language model of the built-in sampling job."""

    bundle: str = ""  # folder or zip file; relative to bundle_root
    llm: bool = False
    deterministic: bool | None = None
    memory_scope: Literal["user", "organization", "none"] | None = None
    system_prompt: str = ""
    params: ReplyDefaults = ReplyDefaults()

    @model_validator(mode="after")
    def _one_kind(self) -> DeploymentSettings:
        if bool(self.bundle) == self.llm:
            raise ValueError("give either bundle = PATH or llm = true")
        if self.bundle and (self.memory_scope or self.system_prompt or self.params.model_fields_set):
            raise ValueError("memory_scope, system_prompt and params are for llm = true, not for a bundle")
        if self.llm and self.deterministic is not None:
            raise ValueError("deterministic is for a bundle; a language model takes params.temperature = 0")
        return self


class LimitSettings(_Strict):
    """Bounds that protect the server."""

    max_message_bytes: int = Field(default=32 * MIB, ge=MIB, le=1024 * MIB)
    max_upload_bytes: int = Field(default=1024 * MIB, ge=MIB)
    max_stored_upload_bytes: int = Field(default=4096 * MIB, ge=MIB)
    max_calls_per_service: int = Field(default=4096, ge=1)
    max_jobs: int = Field(default=16, ge=1)
    max_rollouts: int = Field(default=16_384, ge=1)  # of one tenant, ended ones that are still kept included
    max_rollout_bytes: int = Field(default=1024 * MIB, ge=1024)  # of one tenant, in memory
    rollout_retention_seconds: float = Field(default=3600.0, gt=0)  # after the end, or the last collection
    drain_seconds: float = Field(default=30.0, ge=0)
    http_read_seconds: float = Field(default=60.0, gt=0)  # for a message's bytes to begin coming


class Settings(BaseSettings):
    """All settings. `grpc` and `http` are HOST:PORT; port 0 picks a free one."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        toml_file=None,
        hide_input_in_errors=True,  # the database's address may hold a password
    )

    grpc: str = "127.0.0.1:50051"
    http: str | None = None
    model: str = ""
    openai_profile: Literal["openai", "documented"] = "openai"  # what a body of OpenAI's API may hold and defaults to
    data_dir: Path = Field(default_factory=lambda: Path.home() / ".local" / "share" / "gradwire")
    database: SecretStr = SecretStr("")
    bundle_root: Path | None = None  # callers can deploy what lies in it; the data folder's bundles/
    deployments: dict[Annotated[str, Field(pattern=DEPLOYMENT_NAME)], DeploymentSettings] = {}
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    reflection: bool = True
    shared_memory: bool = True
    sampler: SamplerSettings = SamplerSettings()
    limits: LimitSettings = LimitSettings()
    tls: TlsSettings | None = None
    tokens: tuple[TokenSettings, ...] = ()
    insecure_no_auth: bool = False

    @property
    def bundles(self) -> Path:
        """Where bundles lie that callers can deploy."""
        return self.bundle_root or self.data_dir / "bundles"

    @property
    def wants_tokens(self) -> bool:
        """Callers have to send a token."""
        return not self.insecure_no_auth

    @field_validator("database")
    @classmethod
    def _database(cls, value: SecretStr) -> SecretStr:
        database_url(value.get_secret_value(), Path())
        return value

    @field_validator("grpc", "http")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @model_validator(mode="after")
    def _one_mind_about_auth(self) -> Settings:
        if self.insecure_no_auth:
            if self.tokens:
                raise ValueError("insecure_no_auth and [[tokens]] exclude each other: leave one of them out")
            for name in ("grpc", "http"):
                value = getattr(self, name)
                if value is not None and not is_loopback(split_address(value)[0]):
                    raise ValueError(f"insecure_no_auth is for this machine alone, and {name} = {value!r} is not")
        return self

    @model_validator(mode="after")
    def _no_open_door(self) -> Settings:
        for name in ("grpc", "http"):
            value = getattr(self, name)
            open_door = value is not None and not is_loopback(split_address(value)[0])
            if open_door and self.tls is None:
                raise ValueError(
                    f"{name} = {value!r} can be reached from other hosts: that takes [tls]; or bind to 127.0.0.1"
                )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(config: Path | None, **flags: Any) -> Settings:
    """The settings. Raises SettingsError, a ValueError, which names each unknown or bad key and where it stands."""
    _check_environment()
    if config is not None and not config.is_file():
        raise SettingsError(f"there is no settings file {config}")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    given = {key: value for key, value in flags.items() if value is not None}
    try:
        return FromFile(**given)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config}: {error}") from error
    except ValidationError as error:
        raise explained(error, Settings, Sources(config, given)) from None  # whose text may hold a password


def _check_environment() -> None:
    known = {name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if not name.startswith(ENV_PREFIX) or name in FOREIGN_ENV:
            continue
        own = name.removeprefix(ENV_PREFIX).split("__", 1)[0]
        if own not in known:
            hint = no_setting(own, known, ENV_PREFIX)
            raise SettingsError(f"environment variable {name}: {ENV_PREFIX}{own} {hint}")
