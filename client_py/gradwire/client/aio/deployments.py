"""`client.deployments`: put agents behind names, replace them, take them away."""

from __future__ import annotations

from gradwire.client._convert.deployments import deployment_from_proto
from gradwire.client._convert.jobs import job_id
from gradwire.client._convert.messages import put
from gradwire.client._convert.sampling import params_to_proto
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.types.deployments import Deployment
from gradwire.client.types.inference import MemoryScope
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.sampling import SamplingParamsLike
from gradwire.v1 import deployment_pb2 as pb

_SERVICE = "/gradwire.v1.DeploymentService/"
# Not repeated: a name that an earlier attempt took would be ALREADY_EXISTS, and a replacement would come twice.
_DEPLOY = Rpc(_SERVICE + "Deploy", pb.DeployRequest, pb.DeployResponse, repeatable=False, changes=True)
_GET = Rpc(_SERVICE + "GetDeployment", pb.GetDeploymentRequest, pb.GetDeploymentResponse, repeatable=True)
_LIST = Rpc(_SERVICE + "ListDeployments", pb.ListDeploymentsRequest, pb.ListDeploymentsResponse, repeatable=True)
_UNDEPLOY = Rpc(_SERVICE + "Undeploy", pb.UndeployRequest, pb.UndeployResponse, repeatable=True)


class AsyncDeployments:
    """Makes and ends deployments, which takes the scope ADMIN; `client.inference` talks to them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def deploy_llm(
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
        model = pb.LanguageModel(
            job_id=job_id(job),
            training_job_id=job_id(follow, "follow"),
            params=None if params is None else params_to_proto(params, {}),
        )
        request = pb.DeployRequest(language_model=put(model, system_prompt=system_prompt))
        put(request, deployment_id=deployment_id, memory_scope=memory_scope, replace=replace)
        return deployment_from_proto((await self._connection.unary(_DEPLOY, request, timeout=timeout)).deployment)

    async def deploy_policy(
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
        policy = put(pb.PolicyBundle(), bundle=bundle, deterministic=deterministic)
        request = put(pb.DeployRequest(policy=policy), deployment_id=deployment_id, replace=replace)
        return deployment_from_proto((await self._connection.unary(_DEPLOY, request, timeout=timeout)).deployment)

    async def get(self, deployment_id: str = "", *, timeout: float | None = None) -> Deployment:
        """A deployment, or the only one."""
        request = put(pb.GetDeploymentRequest(), deployment_id=deployment_id)
        return deployment_from_proto((await self._connection.unary(_GET, request, timeout=timeout)).deployment)

    async def list(self, *, timeout: float | None = None) -> tuple[Deployment, ...]:
        """All deployments, by name."""
        found: list[Deployment] = []
        request = pb.ListDeploymentsRequest()
        while True:
            page = await self._connection.unary(_LIST, request, timeout=timeout)
            found += map(deployment_from_proto, page.deployments)
            if not page.next_page_token:
                return tuple(found)
            request.page_token = page.next_page_token

    async def undeploy(self, deployment_id: str, *, timeout: float | None = None) -> bool:
        """Ends a deployment; whether there was one. Requests under way finish; conversations stay stored."""
        request = put(pb.UndeployRequest(), deployment_id=deployment_id)
        return bool((await self._connection.unary(_UNDEPLOY, request, timeout=timeout)).undeployed)
