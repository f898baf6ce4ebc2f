"""A deployment without an engine, for what only the client decides: what is sent, when, and which error comes of what.

A test chooses its `status` and the `failures`, and reads `requests` and `metadata`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import numpy as np

from gradwire.v1 import inference_pb2 as pb
from gradwire.v1 import inference_pb2_grpc, sampling_pb2, session_pb2, session_pb2_grpc
from tests.client.wire import fail

STATUS = {
    "llm": pb.GetStatusResponse(
        deployment_id="chat",
        kind="DEPLOYMENT_KIND_LLM",
        agent=pb.AgentInfo(name="tiny"),
        memory_scope="MEMORY_SCOPE_USER",
    ),
    "rl": pb.GetStatusResponse(
        deployment_id="cartpole", kind="DEPLOYMENT_KIND_RL_POLICY", agent=pb.AgentInfo(name="PPO")
    ),
    "recurrent": pb.GetStatusResponse(kind="DEPLOYMENT_KIND_RL_POLICY", agent=pb.AgentInfo(name="PPO", recurrent=True)),
    "multi": pb.GetStatusResponse(
        kind="DEPLOYMENT_KIND_RL_POLICY", agent=pb.AgentInfo(name="IPPO", agent_ids=["a", "b"])
    ),
    "supervised": pb.GetStatusResponse(kind="DEPLOYMENT_KIND_SUPERVISED", agent=pb.AgentInfo(name="iris")),
    "silent": pb.GetStatusResponse(deployment_id="560"),
}


class FakeAgent(inference_pb2_grpc.InferenceServiceServicer, session_pb2_grpc.SessionServiceServicer):
    """Both services of a deployment."""

    def __init__(self) -> None:
        self.status = STATUS["llm"]
        self.requests: defaultdict[str, list[Any]] = defaultdict(list)
        self.metadata: list[dict[str, Any]] = []
        self.failures: defaultdict[str, list[Any]] = defaultdict(list)
        self.pieces = ["Hel", "", "lo"]
        self.stall = False
        self.cancelled = 0
        self.address = ""
        self._server: Any = None

    async def start(self) -> None:
        """Listens at `address`."""
        self._server = grpc.aio.server()
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, self._server)
        session_pb2_grpc.add_SessionServiceServicer_to_server(self, self._server)
        self.address = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        """Breaks all connections."""
        server, self._server = self._server, None
        await server.stop(0)

    async def _arrive(self, name: str, request: Any, context: Any) -> None:
        self.requests[name].append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        if self.failures[name]:
            await fail(context, self.failures[name].pop(0))

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        await self._arrive("GetStatus", request, context)
        return self.status

    async def GetAction(self, request: Any, context: Any) -> pb.GetActionResponse:
        """The observation, as the action and as the hidden state."""
        await self._arrive("GetAction", request, context)
        if self.stall:
            await asyncio.sleep(3600)
        return pb.GetActionResponse(action=request.observation, hidden_state=request.observation)

    async def Predict(self, request: Any, context: Any) -> pb.PredictResponse:
        await self._arrive("Predict", request, context)
        response = pb.PredictResponse(outputs=request.inputs, batch_size=3)
        response.inference_time.FromMicroseconds(1500)
        return response

    async def GenerateReply(self, request: Any, context: Any) -> pb.GenerateReplyResponse:
        await self._arrive("GenerateReply", request, context)
        ids = np.array([1, 2], "<i4").tobytes()
        completion = sampling_pb2.Completion(text="Hello", token_ids=ids, finish_reason="FINISH_REASON_STOP")
        reply = pb.Reply(completion=completion, session_id=request.session_id or "new")
        response = pb.GenerateReplyResponse(usage=sampling_pb2.Usage(prompt_tokens=3, completion_tokens=8))
        for prompt in request.prompts:
            reply.prompt = prompt
            response.replies.append(reply)
        response.inference_time.FromMilliseconds(4000)
        return response

    async def GenerateReplyStream(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateReplyStreamResponse]:
        await self._arrive("GenerateReplyStream", request, context)
        yield pb.GenerateReplyStreamResponse(start=pb.ReplyStart(session_id=request.session_id or "new"))
        for number, text in enumerate(self.pieces):
            ids = np.array([number], "<i4").tobytes()
            delta = sampling_pb2.CompletionDelta(first_token_index=number, text=text, token_ids=ids)
            yield pb.GenerateReplyStreamResponse(delta=sampling_pb2.StreamDelta(completions=[delta]))
        if self.failures["later"]:
            await fail(context, self.failures["later"].pop(0))
        if self.stall:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        end = sampling_pb2.CompletionEnd(finish_reason="FINISH_REASON_LENGTH", num_tokens=len(self.pieces))
        usage = sampling_pb2.Usage(prompt_tokens=3, completion_tokens=len(self.pieces))
        yield pb.GenerateReplyStreamResponse(end=sampling_pb2.StreamEnd(completions=[end], usage=usage))

    async def GetActionStream(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        async for _ in request_iterator:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this fake answers each call by itself")

    async def ListSessions(self, request: Any, context: Any) -> session_pb2.ListSessionsResponse:
        await self._arrive("ListSessions", request, context)
        return session_pb2.ListSessionsResponse(sessions=[session_pb2.Session(session_id="s1", num_messages=2)])

    async def GetSession(self, request: Any, context: Any) -> session_pb2.GetSessionResponse:
        await self._arrive("GetSession", request, context)
        message = session_pb2.SessionMessage(role="user", content="Hi")
        return session_pb2.GetSessionResponse(session=session_pb2.Session(session_id="s1"), messages=[message])

    async def DeleteSession(self, request: Any, context: Any) -> session_pb2.DeleteSessionResponse:
        await self._arrive("DeleteSession", request, context)
        return session_pb2.DeleteSessionResponse(deleted=request.session_id == "s1")
