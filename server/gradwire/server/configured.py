"""What the settings have the server make at each start: the sampler, and deployments, which are never kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradwire.server.config import DeploymentSettings
from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import LanguageModel, PolicyBundle, Source
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.errors import FailedPrecondition, FieldViolation, InvalidArgument


class BadSamplerSettings(InvalidArgument):
    """The model, or this machine, cannot do what `[sampler]` says; fields are `sampler.KEY`."""


@contextmanager
def sampler_settings() -> Iterator[None]:
    """`sampling.max_model_len` of a job is `sampler.max_model_len` of the settings."""
    try:
        yield
    except InvalidArgument as error:
        violations = [
            FieldViolation(violation.field.replace("sampling", "sampler", 1), violation.description)
            for violation in error.violations
        ]
        raise BadSamplerSettings(violations, reason=error.reason) from error


async def deploy_configured(deployer: Deployer, name: str, settings: DeploymentSettings) -> None:
    """Deploy it, also over what was kept under the name. ValueError when the settings are wrong."""
    source: Source
    if settings.llm:
        params = settings.params.model_dump(exclude_unset=True, exclude_none=True)
        source = LanguageModel(system_prompt=settings.system_prompt, params=params)
    else:
        source = PolicyBundle(settings.bundle, settings.deterministic)
    scope = MemoryScope(settings.memory_scope) if settings.memory_scope else None
    try:
        await deployer.deploy(LOCAL_CALLER, name, source, memory_scope=scope, replacing=True, configured=True)
    except (InvalidArgument, FailedPrecondition) as error:
        raise ValueError(f"deployments.{name}: {error.message}") from error
