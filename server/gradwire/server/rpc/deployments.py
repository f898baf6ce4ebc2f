"""DeploymentService: agents behind names."""

from __future__ import annotations

from typing import Any

from gradwire.server.codec.deployments import decode_scope, decode_source, encode_deployment
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.cursors import Cursor, decode_cursor, encode_cursor
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.v1 import deployment_pb2 as pb
from gradwire.v1 import deployment_pb2_grpc

_PAGE_SIZE = 1000
_PAGE_BYTES = 1 << 20  # and one entry, which may be as large again: well below the 4 MiB that gRPC clients take


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
        size = request.page_size if request.HasField("page_size") else _PAGE_SIZE
        after = decode_cursor(request.page_token, str)
        page = pb.ListDeploymentsResponse()
        room = _PAGE_BYTES
        for deployment in self._deployments.all(after=str(after.tie) if after else ""):
            entry = encode_deployment(deployment, current_caller())
            room -= entry.ByteSize()
            if page.deployments and (len(page.deployments) == size or room < 0):
                # The order is by the name alone.
                page.next_page_token = encode_cursor(Cursor(0, page.deployments[-1].deployment_id))
                break
            page.deployments.append(entry)
        return page

    async def Undeploy(self, request: pb.UndeployRequest, context: Any) -> pb.UndeployResponse:
        return pb.UndeployResponse(undeployed=await self._deployer.undeploy(request.deployment_id))
