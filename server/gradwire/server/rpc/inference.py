"""InferenceService: calls to deployed agents."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from gradwire.server.codec import sampling as codec
from gradwire.server.codec.deployments import encode_status
from gradwire.server.codec.shared import SharedMemoryPolicy
from gradwire.server.codec.times import duration
from gradwire.server.codec.value import decode_optional, decode_value, put_value
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.inference import ActionRequest, Inference
from gradwire.server.domain.replies import Reply, ReplyEnd, ReplyStart
from gradwire.server.engines.sampling import CompletionDelta
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.request_streams import RequestStreams
from gradwire.server.rpc.shares import StreamShares
from gradwire.v1 import inference_pb2 as pb
from gradwire.v1 import inference_pb2_grpc, sampling_pb2


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Adapter of the deployments' calls."""

    def __init__(
        self, inference: Inference, metrics: CallMetrics, shared_memory: SharedMemoryPolicy, shares: StreamShares
    ) -> None:
        self._inference = inference
        self._metrics = metrics
        self._shared_memory = shared_memory
        self._streams = RequestStreams()
        self._shares = shares

    def dismiss(self) -> None:
        """The server shuts down: streams of requests end where they wait for one."""
        self._streams.dismiss()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        caller = current_caller()
        return encode_status(self._inference.status(caller, request.deployment_id), caller)

    async def GetAction(self, request: pb.GetActionRequest, context: Any) -> pb.GetActionResponse:
        response = pb.GetActionResponse()
        await self._act(request, response)
        return response

    async def GetActionStream(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        with self._shares.one(current_caller().tenant), self._streams.each(request_iterator) as requests:
            async for message in requests:
                answer = pb.GetActionStreamResponse()
                await self._act(message.request, answer.response)
                await context.write(answer)

    async def _act(self, request: pb.GetActionRequest, response: pb.GetActionResponse) -> None:
        caller = current_caller()
        shared = self._shared_memory.reads(same_host=caller.same_host)
        asked = ActionRequest(
            observation=decode_value(request.observation, "observation", shared),
            batched=request.batched,
            hidden_state=decode_optional(request, "hidden_state", shared),
            action_mask=decode_optional(request, "action_mask", shared),
            env_defined_actions=decode_optional(request, "env_defined_actions", shared),
            deterministic=request.deterministic if request.HasField("deterministic") else None,
            seed=request.seed if request.HasField("seed") else None,
            session_id=request.session_id,
        )
        if shared is not None and shared.pending:
            await shared.read()
        actions = await self._inference.act(caller, request.deployment_id, asked)
        response.inference_time.CopyFrom(duration(actions.seconds))
        put_value(response.action, actions.action)
        if actions.hidden_state is not None:
            put_value(response.hidden_state, actions.hidden_state)

    async def Predict(self, request: pb.PredictRequest, context: Any) -> pb.PredictResponse:
        shared = self._shared_memory.reads(same_host=current_caller().same_host)
        inputs = decode_value(request.inputs, "inputs", shared)
        if shared is not None and shared.pending:
            await shared.read()
        found = await self._inference.predict(request.deployment_id, inputs, batched=request.batched)
        response = pb.PredictResponse(batch_size=found.batch_size, inference_time=duration(found.seconds))
        put_value(response.outputs, found.outputs)
        return response

    async def GenerateReply(self, request: pb.GenerateReplyRequest, context: Any) -> pb.GenerateReplyResponse:
        with codec.in_request_terms():
            found = await self._inference.generate(
                current_caller(),
                request.deployment_id,
                list(request.prompts),
                codec.given_params(request.params),
                request.session_id if request.HasField("session_id") else None,
            )
        usage = sampling_pb2.Usage(
            prompt_tokens=sum(reply.end.num_prompt_tokens for reply in found.replies),
            completion_tokens=sum(reply.end.num_tokens for reply in found.replies),
            cached_tokens=sum(reply.end.num_cached_tokens for reply in found.replies),
        )
        self._metrics.sampled_tokens.inc(usage.completion_tokens)
        return pb.GenerateReplyResponse(
            replies=map(_encode_reply, found.replies), usage=usage, inference_time=duration(found.seconds)
        )

    async def GenerateReplyStream(self, request: pb.GenerateReplyStreamRequest, context: Any) -> None:  # type: ignore[override]
        session_id = request.session_id if request.HasField("session_id") else None
        given = codec.given_params(request.params)
        events = self._inference.stream(current_caller(), request.deployment_id, request.prompt, given, session_id)
        start: pb.ReplyStart | None = None
        with codec.in_request_terms():
            async with aclosing(events):
                async for event in events:
                    match event:
                        case ReplyStart():
                            start = _encode_start(event)
                        case CompletionDelta():
                            # The start goes with the first tokens: each message costs both sides more than tokens do.
                            if len(event.token_ids) or event.text:
                                delta = sampling_pb2.StreamDelta(completions=[codec.encode_delta(event)])
                                await context.write(pb.GenerateReplyStreamResponse(start=start, delta=delta))
                                start = None
                        case ReplyEnd():
                            # Before the caller can know that it is over, and look at the count.
                            self._metrics.sampled_tokens.inc(event.num_tokens)
                            await context.write(pb.GenerateReplyStreamResponse(start=start, end=_encode_end(event)))


def _encode_start(start: ReplyStart) -> pb.ReplyStart:
    return pb.ReplyStart(
        params=codec.encode_params(start.params, max_tokens=start.params.max_tokens),
        session_id=start.session_id,
        num_dropped_messages=start.num_dropped_messages,
    )


def _encode_end(end: ReplyEnd) -> sampling_pb2.StreamEnd:
    return sampling_pb2.StreamEnd(
        completions=[
            sampling_pb2.CompletionEnd(
                index=0,
                finish_reason=codec.encode_finish(end.finish_reason),
                stop_reason=codec.encode_stop(end.stop_reason),
                num_tokens=end.num_tokens,
            )
        ],
        usage=sampling_pb2.Usage(
            prompt_tokens=end.num_prompt_tokens,
            completion_tokens=end.num_tokens,
            cached_tokens=end.num_cached_tokens,
        ),
    )


def _encode_reply(reply: Reply) -> pb.Reply:
    return pb.Reply(
        prompt=reply.prompt,
        completion=codec.encode_completion(reply.completion),
        session_id=reply.start.session_id,
        num_dropped_messages=reply.start.num_dropped_messages,
    )
