"""ArenaClient, `open_inference_agent` and `deploy_agent`: from a deployment's name to an agent, and making deployments.

Knows: which server and which credential, once for all its calls. A deployment's name is unique on its server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import NoneType, TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from gradwire.client._core.arguments import check, given
from gradwire.client._core.connection import check_timeout
from gradwire.client.arena.agent import Agent
from gradwire.client.arena.credentials import find_credential
from gradwire.client.arena.endpoint import server_url
from gradwire.client.arena.errors import ArenaValidationError, arena_errors
from gradwire.client.config import TLSConfig
from gradwire.client.sync.client import Client
from gradwire.client.types.deployments import Deployment
from gradwire.client.types.inference import MemoryScope
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.sampling import SamplingParamsLike

_DEPLOY_TIMEOUT_S = 600.0


class ArenaClient:
    """A server with its deployments. Credentials as `Agent` has them; ArenaAuthError when they are refused."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        org_key: str | None = None,
        external_user_id: str | None = None,
        base_url: str | None = None,
        request_timeout: float = 30,
        tls: TLSConfig | None = None,
    ) -> None:
        """`base_url` is the server's address: grpc://, grpcs://, http:// or https://. Default ARENA_BASE_URL, then
        GRADWIRE_ADDRESS, then 127.0.0.1:50051. `request_timeout` is in seconds."""
        self._credential = find_credential(api_key, org_key, external_user_id)
        self._timeout = request_timeout
        self._tls = tls
        with arena_errors():
            check_timeout(request_timeout, "request_timeout")
            self._base = server_url(base_url or os.environ.get("ARENA_BASE_URL"))
            self._client = Client(
                self._base,
                token=self._credential.token,
                metadata=self._credential.metadata,
                tls=tls,
                timeout=request_timeout,
            )

    def open_inference_agent(
        self,
        deployment_name: str,
        *,
        refresh: bool = False,
        experiment_name: str | None = None,
        project_name: str | None = None,
        timeout: float | None = None,
    ) -> Agent:
        """The agent of that name, with this client's credential. Its metadata has been fetched.

        `timeout` is as in `Agent`, default the client's. The other arguments, by which Arena tells deployments of one
        name apart and renews what it remembers of them, are not needed: names are unique here, nothing is remembered.
        """
        return Agent(
            self._base if self._base.startswith("unix:") else f"{self._base}/{quote(_named(deployment_name), safe='')}",
            deployment=_named(deployment_name),
            api_key=None if self._credential.external_user_id else self._credential.token,
            org_key=self._credential.token if self._credential.external_user_id else None,
            external_user_id=self._credential.external_user_id,
            timeout=self._timeout if timeout is None else timeout,
            tls=self._tls,
        )

    def deploy_agent(
        self,
        experiment_name: str,
        checkpoint: str | None = None,
        memory_scope: Literal["user", "organization"] | None = None,
        *,
        job: JobRef | None = None,
        follow: JobRef | None = None,
        system_prompt: str = "",
        params: SamplingParamsLike | None = None,
        deterministic: bool | None = None,
    ) -> dict[str, Any]:
        """Puts an agent behind a name, or a new version of it; requests under way finish with the old one.

        Args:
            experiment_name: the deployment's name.
            checkpoint: a bundle below the server's bundle_root: a policy or a supervised model (docs/policies.md).
                Default: a language model.
            memory_scope: who sees a language model's chat sessions: "user" (each their own) or "organization" (all
                users of it share them). Chosen by the first deployment of a name. Default: as chosen, or "user".
            job, follow, system_prompt, params: of a language model, as in `client.deployments.deploy_llm`.
            deterministic: of a policy, as in `client.deployments.deploy_policy`.

        Returns:
            The deployment: its name, url, kind, version, state, memory_scope and more.

        Raises ArenaValidationError before any request, ArenaInferenceError, ArenaAuthError (it takes scope ADMIN).
        """
        name = _named(experiment_name)
        scope = None if memory_scope is None else str(memory_scope).strip().lower()
        if scope not in (None, "user", "organization"):
            raise ArenaValidationError(f"memory_scope is {memory_scope!r}; it is 'user' or 'organization'")
        if checkpoint is not None and (scope or system_prompt or params or job is not None or follow is not None):
            raise ArenaValidationError("memory_scope, job, follow, system_prompt and params are of language models")
        if not isinstance(checkpoint, str | None):
            raise ArenaValidationError(f"checkpoint is {given(checkpoint)}; it takes text")
        if checkpoint is None and deterministic is not None:
            raise ArenaValidationError("deterministic is of policies; name their bundle as checkpoint=")
        deployments = self._client.deployments
        with arena_errors():
            if checkpoint is None:
                made = deployments.deploy_llm(
                    name,
                    job=job,
                    follow=follow,
                    system_prompt=system_prompt,
                    params=params,
                    memory_scope=scope,
                    replace=True,
                    timeout=_DEPLOY_TIMEOUT_S,
                )
            else:
                made = deployments.deploy_policy(
                    name, checkpoint, deterministic=deterministic, replace=True, timeout=_DEPLOY_TIMEOUT_S
                )
        return self._row(made)

    def list_inference_deployments(
        self, *, name: str | None = None, experiment_name: str | None = None, project_name: str | None = None
    ) -> list[dict[str, Any]]:
        """The deployments, or those of a name. (`experiment_name` is the same; this server knows no projects.)"""
        if project_name is not None:
            raise ArenaValidationError("project_name: this server knows no projects; leave it out")
        with arena_errors():
            check(name, "name", (str, NoneType), "text")
            check(experiment_name, "experiment_name", (str, NoneType), "text")
            found = self._client.deployments.list()
        wanted = {named for named in (name, experiment_name) if named is not None}
        return [self._row(deployment) for deployment in found if wanted <= {deployment.deployment_id}]

    def close(self) -> None:
        """Closes the connection; agents have their own. Closing again is fine."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} base_url={self._base!r}>"

    def _row(self, deployment: Deployment) -> dict[str, Any]:
        name = deployment.deployment_id
        scope = deployment.memory_scope
        return {
            "name": name,
            "url": f"{self._base}/{quote(name, safe='')}",
            "kind": deployment.kind.value,
            "version": deployment.version,
            "instance_id": deployment.instance_id,
            "state": deployment.state.value,
            "error": deployment.error,
            "memory_scope": None if scope is MemoryScope.UNSPECIFIED else scope.value,
            "weight_version": deployment.weight_version,
            "deployed_at": deployment.deployed_at and deployment.deployed_at.isoformat(),
        }


def open_inference_agent(deployment_name: str, *, timeout: float | None = None, **client: Any) -> Agent:
    """As `ArenaClient(**client).open_inference_agent(deployment_name)`."""
    with ArenaClient(**client) as arena:
        return arena.open_inference_agent(deployment_name, timeout=timeout)


def deploy_agent(
    experiment_name: str,
    checkpoint: str | None = None,
    memory_scope: Literal["user", "organization"] | None = None,
    *,
    client: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """As `ArenaClient(**client).deploy_agent(experiment_name, checkpoint, memory_scope, **options)`."""
    with ArenaClient(**(client or {})) as arena:
        return arena.deploy_agent(experiment_name, checkpoint, memory_scope, **options)


def _named(name: str) -> str:
    if not isinstance(name, str):
        raise ArenaValidationError(f"the deployment's name is {given(name)}; it takes text")
    if not name.strip():
        raise ArenaValidationError("the deployment's name is empty")
    return name.strip()
