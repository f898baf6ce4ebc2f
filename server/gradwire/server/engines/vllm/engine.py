"""`VllmSampler`: the sampling engine on vLLM's AsyncLLM.

Lives in the front process, on its event loop; vLLM's engine core and workers are processes of
their own. Several samplers may live in one front. This file is the surface; the rest is in
link.py, requests.py, updates.py and sleeping.py, and inside the workers in `worker/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from gradwire.server.engines.base import Progress
from gradwire.server.engines.manifest import Shapes, check_adapter_manifest, check_manifest, folder_shapes
from gradwire.server.engines.progress import still
from gradwire.server.engines.render import Renderer, check_length
from gradwire.server.engines.sampling import (
    ModelInfo,
    SampledTokens,
    SampleEvent,
    SamplerConfig,
    SampleRequest,
    SamplerLoad,
    TokenIds,
)
from gradwire.server.engines.vllm.adapters import Adapters
from gradwire.server.engines.vllm.checks import check_priority, check_prompt
from gradwire.server.engines.vllm.coalesce import Coalescer, set_interval
from gradwire.server.engines.vllm.errors import translated
from gradwire.server.engines.vllm.link import EngineLink
from gradwire.server.engines.vllm.openai.guard import GuardedEngine
from gradwire.server.engines.vllm.openai.serving import OpenAiServing
from gradwire.server.engines.vllm.outputs import OutputReader, check_ended
from gradwire.server.engines.vllm.params import to_vllm
from gradwire.server.engines.vllm.plugin import LOAD
from gradwire.server.engines.vllm.requests import Request, Requests
from gradwire.server.engines.vllm.sleeping import TAGS, SleepState
from gradwire.server.engines.vllm.updates import WeightUpdates
from gradwire.server.engines.vllm.versions import Versions, version_in
from gradwire.server.engines.weights import AdapterSpec, InFlightPolicy, MemoryReport, TensorChecksum, WeightManifest
from gradwire.server.errors import Unavailable


class VllmSampler:
    """A sampling engine; see `SamplerEngine` for the methods. Errors are `GradwireError`s.

    Log-probs are vLLM's raw ones: of the model's distribution before temperature, penalties and
    any restriction of the vocabulary. Sampling parameters never change them.
    """

    def __init__(self, config: SamplerConfig) -> None:
        self.config = config
        self._link = EngineLink()
        self._versions = Versions()
        self._sleep = SleepState(self._link, self._versions)
        self._updates = WeightUpdates(self._link, self._versions)
        self._adapters = Adapters(self._link, self._versions, capacity=config.max_loras)
        self._requests = Requests(self._link, self._adapters)
        self._renderer: Renderer | None = None
        self._info: ModelInfo | None = None
        self._openai: OpenAiServing | None = None
        self._shapes: Shapes = {}
        self._coalescer = Coalescer()
        self._lifecycle = asyncio.Lock()  # weight updates, sleep and wake exclude each other
        self._paused = False

    @property
    def info(self) -> ModelInfo:
        """What is served. Valid after `start`."""
        if self._info is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the sampling engine has not been started")
        return self._info

    async def start(self, progress: Progress) -> None:
        """Load the model and start the engine's processes; 10 s and more.

        Raises InvalidArgument when the configuration does not fit the model, GradwireError
        (INTERNAL) when the engine does not come up; the reason is then in the server's log.
        """
        folder = self.config.model_path or self.config.model
        progress(f"starting vLLM for {self.config.model}")
        # The cheap parts first: what they find wrong with the folder costs no started engine.
        self._renderer = await asyncio.to_thread(Renderer, folder)
        self._shapes = await asyncio.to_thread(folder_shapes, Path(folder))
        async with still(progress, f"starting vLLM for {self.config.model}"):
            await self._link.start(self.config)
        self._info = self._describe(folder, self._renderer)
        self._openai = await asyncio.to_thread(self._make_openai, self._info)
        await self._link.call(self._link.llm.update_weight_version(self._versions.text()))
        progress(f"vLLM started for {self.config.model}: {self._info.dtype}, context {self._info.max_model_len}")

    def _make_openai(self, info: ModelInfo) -> OpenAiServing:
        def require_awake() -> None:
            self._sleep.require_awake(TAGS)

        engine = GuardedEngine(self._link, require_awake, self._requests, self._adapters)
        return OpenAiServing(engine, info, tool_parser=self.config.tool_call_parser or None)

    @property
    def openai(self) -> OpenAiServing:
        """OpenAI's API on this engine. Valid after `start`."""
        if self._openai is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the sampling engine has not been started")
        return self._openai

    def _describe(self, folder: str, renderer: Renderer) -> ModelInfo:
        llm = self._link.llm
        eos = llm.input_processor.generation_config_fields.get("eos_token_id", renderer.eos_token_id)
        model = llm.model_config
        return ModelInfo(
            name=self.config.model,
            path=folder,
            max_model_len=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
            dtype=str(model.dtype).removeprefix("torch."),
            eos_token_ids=(eos,) if isinstance(eos, int) else tuple(eos or ()),
            has_chat_template=renderer.has_chat_template,
            max_log_probs=self.config.max_log_probs,
            architecture=model.architecture,
        )

    @property
    def _tokens(self) -> Renderer:
        if self._renderer is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the sampling engine has not been started")
        return self._renderer

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        """Token ids of a text, int32 [T]. Blocks; may be called from any thread."""
        check_length(len(text), self.info, self._tokens.longest_token)
        return self._tokens.tokenize(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        """Token ids of a conversation, int32 [T]. Raises InvalidArgument at `messages`."""
        characters = sum(len(str(message.get("content", ""))) for message in messages)
        check_length(characters, self.info, self._tokens.longest_token)
        return self._tokens.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)

    async def generate(self, request: SampleRequest) -> AsyncIterator[SampleEvent]:
        """Sample; closing the iterator, or cancelling the task that awaits it, aborts the request.

        While the engine is paused, requests wait. Raises InvalidArgument (fields `prompt.token_ids`
        and `params.*`), FailedPrecondition while asleep, Unavailable when the engine dies.
        """
        self._sleep.require_awake(TAGS)
        room = check_prompt(request.prompt_token_ids, self.info)
        check_priority(request.priority)
        adapter = self._adapters.number(request.adapter)
        added = await self._add(request, room)
        pace, interval = self._coalescer, 1
        pace.open()
        try:
            self._sleep.require_awake(TAGS)  # it may have fallen asleep, and would hold the request until it wakes
            states = added.records(request.params.n)
            reader = OutputReader(
                len(request.prompt_token_ids),
                prompt_log_probs=request.params.prompt_log_probs,
                log_probs=request.params.log_probs,
                states=states,
                adapter=adapter,
            )
            with translated():
                while not added.finished:
                    output = await added.output()
                    check_ended(output, "params.structured_output" if request.params.structured is not None else "")
                    event = reader.read(output)
                    pace.count(sum(len(delta.token_ids) for delta in event.deltas))
                    if request.stream and interval != pace.interval:
                        interval = pace.interval
                        set_interval(states.values(), interval)
                    yield event
        finally:
            pace.close()
            await added.leave()

    async def _add(self, request: SampleRequest, room: int) -> Request:
        from vllm.inputs.engine import tokens_input

        with translated(request.params):
            prompt = tokens_input(request.prompt_token_ids.tolist(), cache_salt=request.cache_salt)
            params = to_vllm(request.params, stream=request.stream, room=room, stream_interval=self._coalescer.interval)
            return await self._requests.add(
                request.request_id, prompt, params, adapter=request.adapter, priority=int(request.priority)
            )

    async def num_unfinished(self) -> int:
        """Completions the engine still works on or has waiting (n of a request count n)."""
        return int(self._link.llm.get_num_unfinished_requests())

    @property
    def tokens(self) -> SampledTokens:
        """Tokens since the start, by every API."""
        return self._requests.tokens

    async def load(self) -> SamplerLoad:
        """What the schedulers of all engine cores have to do, as they say between two steps; see plugin.py."""
        cores = await self._link.call(self._link.llm.engine_core.call_utility_all_async(LOAD))
        running, waiting, usage = zip(*cores, strict=True)
        return SamplerLoad(sum(running), sum(waiting), max(usage))

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes. Running requests are read again from their first token."""
        await self._link.call(self._link.llm.reset_prefix_cache(reset_running_requests=True))

    async def pause(self, policy: InFlightPolicy) -> None:
        """Stop sampling until `resume`; new requests wait.

        ABORT ends what runs with finish reason abort, WAIT lets it finish first, KEEP freezes it.
        """
        self._paused = True  # first: new requests wait from now on, also when our caller does not stay to the end
        await self._link.call(self._link.llm.pause_generation(mode=policy.value, clear_cache=False))

    async def resume(self) -> None:
        """Sample again. Legal when not paused."""
        self._paused = False
        if not self._sleep:
            await self._link.call(self._link.llm.resume_generation())

    def check_manifest(self, manifest: WeightManifest) -> None:
        """Raises InvalidArgument, at `manifest` and `manifest[i]`, for what does not fit the model."""
        check_manifest(manifest, self._shapes)

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a shared-memory segment's tensors as weight version `version`; call it paused.

        All or nothing: on any error the old weights and version go on. The prefix cache is
        forgotten. Requests frozen by KEEP lose their cached keys and values, too: after `resume`
        their prompt and their tokens so far are read again by the new weights, so no stale state
        is left anywhere.

        Raises InvalidArgument when manifest or segment do not fit the model, FailedPrecondition
        while the weights are asleep.
        """
        check_manifest(manifest, self._shapes)
        async with self._lifecycle:
            self._sleep.require_awake(("weights",))
            await self._updates.apply(segment, manifest, version)

    async def weight_version(self) -> int:
        """Version of the model's own weights that sample now; 0 for those of its folder."""
        return version_in(await self._link.call(self._link.llm.get_weight_version()), 0)

    async def update_adapter(
        self, name: str, spec: AdapterSpec, segment: str, manifest: WeightManifest, version: int
    ) -> None:
        """Load a shared-memory segment's factors as adapter `name` in version `version`; call it paused.

        All or nothing: on any error the adapter stays as it was, or is not there. Requests that are frozen by
        KEEP go on with the new factors, and read again what the old ones computed.

        Raises InvalidArgument when segment or manifest do not fit the model, FailedPrecondition when all slots
        are taken and while the weights are asleep.
        """
        check_adapter_manifest(manifest, self._shapes, spec.rank)
        async with self._lifecycle:
            self._sleep.require_awake(("weights",))
            await self._adapters.update(name, spec, segment, manifest, version)

    async def remove_adapter(self, name: str) -> None:
        """Forget an adapter; its requests end with finish reason abort. Legal for one that is not there."""
        async with self._lifecycle:
            await self._adapters.remove(name)

    async def weight_norm(self, adapter: str = "") -> float:
        """L2 norm of all parameters, or of an adapter's factors; float64 accumulation, tied tensors once."""
        self._sleep.require_awake(("weights",))
        return float((await self._link.workers("squared_norm", self._adapters.number(adapter)))[0]) ** 0.5

    async def checksums(self, adapter: str = "") -> list[TensorChecksum]:
        """Checksums under Hugging Face names, in the engine's dtype, tied tensors once; or of an adapter's factors.

        An adapter's tensors have the names of peft's files, and B is as it was before alpha / rank.
        """
        self._sleep.require_awake(("weights",))
        rows = (await self._link.workers("checksums", self._adapters.number(adapter)))[0]
        return [TensorChecksum(name, dtype, tuple(shape), sha) for name, dtype, shape, sha in rows]

    async def sleep(self, level: int) -> MemoryReport:
        """Give memory back; running requests end with finish reason abort.

        Level 1 keeps the weights (on the CPU in a file on disk, on a GPU in host memory). Level 2
        drops them: `wake` loads the model's folder, and the weight version is 0 again. Asking twice
        is fine and changes nothing. Raises ResourceExhausted when the weights find no room; the engine
        stays awake then.
        """
        async with self._lifecycle:
            return await self._sleep.sleep(level, paused=self._paused)

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`: all of it (None), or "weights" first and "kv_cache" later.

        Raises InvalidArgument for another tag, FailedPrecondition for kv_cache before weights.
        What is awake already is left alone.
        """
        async with self._lifecycle:
            return await self._sleep.wake(tags, paused=self._paused)

    async def check_health(self) -> None:
        """Raises Unavailable when a process of the engine is dead, or does not answer: see liveness.py."""
        await self._link.check_answers()

    async def shutdown(self) -> None:
        """Stop the engine's processes; returns when they are gone. Legal twice, and before `start`."""
        await self._link.stop()
