"""`client.deployments`: put agents behind names, replace them, take them away.

Generated from `gradwire.client.aio.deployments` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from gradwire.client.aio.deployments import AsyncDeployments
from gradwire.client.sync.portal import Portal
from gradwire.client.types.deployments import Deployment
from gradwire.client.types.inference import MemoryScope
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.sampling import SamplingParamsLike


class Deployments:
    """Makes and ends deployments, which takes the scope ADMIN; `client.inference` talks to them."""

    def __init__(self, client: AsyncDeployments, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def deploy_llm(
        self,
        deployment_id: str,
        *,
        job: JobRef | None = None,
        follow: JobRef | None = None,
        system_prompt: str = "",
        params: SamplingParamsLike | None = None,
        memory_scope: MemoryScope | str | None = None,
        replace: bool = False,
        timeout: float | None = None,
    ) -> Deployment:
        """Puts the language model of a sampling job (default: the server's own) behind a name.

        It answers with the weights that `follow`, a training job, last synced to that sampler. `system_prompt` stands
        before each conversation. `params` is what requests get that do not say. `memory_scope` says who sees
        conversations: "user" (the default) or "organization"; MemoryScope.UNSPECIFIED stores none. The first
        deployment of a name chooses it for ever. AlreadyExistsError when the name is taken, unless `replace`: then
        requests under way finish with what was there, and no request is refused.
        """
        return self._loop.run(
            self._async.deploy_llm(
                deployment_id,
                job=job,
                follow=follow,
                system_prompt=system_prompt,
                params=params,
                memory_scope=memory_scope,
                replace=replace,
                timeout=timeout,
            )
        )

    def deploy_policy(
        self,
        deployment_id: str,
        bundle: str,
        *,
        deterministic: bool | None = None,
        replace: bool = False,
        timeout: float | None = None,
    ) -> Deployment:
        """Puts a policy or a supervised model behind a name.

        `bundle` is a folder or zip file below the server's bundle_root. `deterministic` is what requests get that do
        not say; None: as the bundle says. `replace` as in `deploy_llm`.
        """
        return self._loop.run(
            self._async.deploy_policy(
                deployment_id, bundle, deterministic=deterministic, replace=replace, timeout=timeout
            )
        )

    def get(self, deployment_id: str = "", *, timeout: float | None = None) -> Deployment:
        """A deployment, or the only one."""
        return self._loop.run(self._async.get(deployment_id, timeout=timeout))

    def list(self, *, timeout: float | None = None) -> tuple[Deployment, ...]:
        """All deployments, by name."""
        return self._loop.run(self._async.list(timeout=timeout))

    def undeploy(self, deployment_id: str, *, timeout: float | None = None) -> bool:
        """Ends a deployment; whether there was one. Requests under way finish; conversations stay stored."""
        return self._loop.run(self._async.undeploy(deployment_id, timeout=timeout))
