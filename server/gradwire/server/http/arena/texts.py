"""Replies of language models, whole and as they come. What the wire has no field for is in headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from gradwire.server.codec.sampling import given_params
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.inference import Inference
from gradwire.server.domain.replies import ReplyEnd, ReplyStart
from gradwire.server.engines.sampling import FinishReason
from gradwire.server.errors import Aborted, InvalidArgument
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked
from gradwire.server.http.arena.requests import TextCall, text_call
from gradwire.server.rpc.interceptors.step import Chain
from gradwire.v1 import inference_pb2, sampling_params_pb2

_SESSION_HEADER = b"x-gradwire-session-id"
_FINISH_HEADER = b"x-gradwire-finish-reason"
_DROPPED_HEADER = b"x-gradwire-dropped-messages"


class Texts:
    """`POST /generate` and `/generate_stream`. `count` is told how many tokens were sampled."""

    def __init__(self, inference: Inference, chain: Chain, count: Callable[[int], None]) -> None:
        self._inference = inference
        self._chain = chain
        self._count = count

    async def whole(self, asked: Asked, answer: Answer) -> None:
        """One prompt or many: each is a conversation of its own unless a session is named, which takes one."""
        call = await asked.read(lambda body: text_call(body, streamed=False))
        given = await self._given(asked, call)
        found = await self._inference.generate(
            current_caller(), asked.deployment_id, call.prompts, given, call.session_id
        )
        tokens = sum(reply.end.num_tokens for reply in found.replies)
        self._count(tokens)
        for reply in found.replies:
            _check_whole(reply.end.finish_reason)
        results = [{"prompt": reply.prompt, "completion": reply.completion.text} for reply in found.replies]
        body = {
            "results": results,
            "batch_size": len(results),
            "inference_time_ms": 1000 * found.seconds,
            "tokens_per_second": tokens / max(found.seconds, 1e-9),
            "success": True,
        }
        starts = [reply.start for reply in found.replies]
        ends = b",".join(str(reply.end.finish_reason).encode() for reply in found.replies)
        await answer.json(body, headers=[*_headers(starts), (_FINISH_HEADER, ends)])

    async def stream(self, asked: Asked, answer: Answer) -> None:
        """Raw text: each chunk of HTTP is what is new."""
        call = await asked.read(lambda body: text_call(body, streamed=True))
        given = await self._given(asked, call)
        events = self._inference.stream(current_caller(), asked.deployment_id, call.prompts[0], given, call.session_id)
        async with aclosing(events):
            async for event in events:
                match event:
                    case ReplyStart():
                        await answer.begin_text(_headers([event]))
                    case ReplyEnd():
                        _check_whole(event.finish_reason)
                    case _:
                        self._count(len(event.token_ids))
                        await answer.text(event.text)
        await answer.end()

    async def _given(self, asked: Asked, call: TextCall) -> dict[str, Any]:
        """The parameters, by the rules of the protos: there is one place that says what a temperature may be."""
        try:
            params = sampling_params_pb2.SamplingParams(**call.params)
        except (ValueError, OverflowError) as error:  # a number that is out of all range
            raise InvalidArgument.at("params", str(error)) from error
        request = inference_pb2.GenerateReplyRequest(prompts=call.prompts, params=params)
        if call.session_id is not None:
            request.session_id = call.session_id
        await self._chain.check(asked.call, request)
        return given_params(params)


def _check_whole(reason: FinishReason) -> None:
    """The wire has no word for a reply that broke off: it would look whole."""
    if reason in (FinishReason.ABORT, FinishReason.ERROR):
        raise Aborted("REPLY_BROKE_OFF", "the reply broke off; what there is of it is stored, and marked as incomplete")


def _headers(starts: Sequence[ReplyStart]) -> list[tuple[bytes, bytes]]:
    """Which conversations the replies are of, in the order of the prompts, and how much their contexts left out."""
    dropped = b",".join(str(start.num_dropped_messages).encode() for start in starts)
    if not starts[0].session_id:
        return [(_DROPPED_HEADER, dropped)]
    ids = b",".join(start.session_id.encode() for start in starts)
    return [(_SESSION_HEADER, ids), (_DROPPED_HEADER, dropped)]
