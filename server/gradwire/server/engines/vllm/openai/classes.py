"""vLLM's own serving classes, made for one engine: the only place that knows how they are put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.server.engines.openai import Endpoint
from gradwire.server.engines.sampling import ModelInfo
from gradwire.server.engines.vllm.openai.guard import GuardedEngine


class ServingClasses:
    """Chat completions and completions. `tool_parser` is how the model writes tool calls; None: it does not."""

    def __init__(self, engine: GuardedEngine, info: ModelInfo, tool_parser: str | None) -> None:
        from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
        from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
        from vllm.entrypoints.openai.models.protocol import BaseModelPath
        from vllm.entrypoints.openai.models.serving import OpenAIServingModels
        from vllm.renderers.online_renderer import OnlineRenderer

        client: Any = engine  # by its methods, which is all that they use
        models = OpenAIServingModels(client, [BaseModelPath(name=info.name, model_path=info.path)])
        chat_options: dict[str, Any] = {
            "chat_template": None,  # the model's own
            "chat_template_content_format": "auto",
            "enable_auto_tools": tool_parser is not None,
            "tool_parser": tool_parser,
        }
        renderer = OnlineRenderer(
            model_config=client.model_config, renderer=client.renderer, request_logger=None, **chat_options
        )
        shared: dict[str, Any] = {
            "online_renderer": renderer,
            "request_logger": None,
            "enable_prompt_tokens_details": True,
        }
        self._chat = OpenAIServingChat(client, models, "assistant", **shared, **chat_options)
        self._completion = OpenAIServingCompletion(client, models, **shared)

    def parse(self, endpoint: Endpoint, body: Mapping[str, Any]) -> Any:
        """The request that a body is; pydantic.ValidationError when it is none."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        kind = ChatCompletionRequest if endpoint is Endpoint.CHAT_COMPLETIONS else CompletionRequest
        return kind.model_validate(body)

    async def create(self, endpoint: Endpoint, request: Any) -> Any:
        """A response, an error response, or an async generator of the lines of a stream."""
        if endpoint is Endpoint.CHAT_COMPLETIONS:
            return await self._chat.create_chat_completion(request)
        return await self._completion.create_completion(request)
