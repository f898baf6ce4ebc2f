"""Deployments of the settings: made anew at each start, and never kept."""

from __future__ import annotations

from gradwire.server.config import DeploymentSettings
from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import LanguageModel, PolicyBundle, Source
from gradwire.server.domain.sessions import MemoryScope


async def deploy_configured(deployer: Deployer, name: str, settings: DeploymentSettings) -> None:
    """Deploy it, also over what was kept under the name. Raises as `Deployer.deploy` does: the settings are wrong."""
    source: Source
    if settings.llm:
        params = settings.params.model_dump(exclude_unset=True, exclude_none=True)
        source = LanguageModel(system_prompt=settings.system_prompt, params=params)
    else:
        source = PolicyBundle(settings.bundle, settings.deterministic)
    scope = MemoryScope(settings.memory_scope) if settings.memory_scope else None
    await deployer.deploy(LOCAL_CALLER, name, source, memory_scope=scope, replacing=True, configured=True)
