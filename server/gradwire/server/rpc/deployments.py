"""DeploymentService: agents behind names."""

from __future__ import annotations

from typing import Any

from gradwire.server.codec.deployments import decode_scope, decode_source, encode_deployment
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.v1 import deployment_pb2 as pb
from gradwire.v1 import deployment_pb2_grpc


class DeploymentServicer(deployment_pb2_grpc.DeploymentServiceServicer):
    """Adapter of the deployments."""

    def __init__(self, deployments: Deployments, deployer: Deployer) -> None:
        self._deployments = deployments
        self._deployer = deployer

    async def Deploy(self, request: pb.DeployRequest, context: Any) -> pb.DeployResponse:
        deployment = await self._deployer.deploy(
            current_caller(),
            request.deployment_id,
            decode_source(request),
            memory_scope=decode_scope(request),
            replacing=request.replace,
        )
        return pb.DeployResponse(deployment=encode_deployment(deployment, current_caller()))

    async def GetDeployment(self, request: pb.GetDeploymentRequest, context: Any) -> pb.GetDeploymentResponse:
        deployment = self._deployments.find(request.deployment_id)
        return pb.GetDeploymentResponse(deployment=encode_deployment(deployment, current_caller()))

    async def ListDeployments(self, request: pb.ListDeploymentsRequest, context: Any) -> pb.ListDeploymentsResponse:
        caller = current_caller()
        return pb.ListDeploymentsResponse(deployments=[encode_deployment(d, caller) for d in self._deployments.all()])

    async def Undeploy(self, request: pb.UndeployRequest, context: Any) -> pb.UndeployResponse:
        return pb.UndeployResponse(undeployed=await self._deployer.undeploy(request.deployment_id))
