"""`VllmSampler`: the sampling engine on vLLM's AsyncLLM.

Lives in the front process, on its event loop; vLLM's engine core and workers are processes of
their own. Several samplers may live in one front. Knows vLLM's client side; what happens inside
the workers is in `worker/`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gradwire.server.engines.base import Progress
from gradwire.server.engines.sampling import ModelInfo, SampleEvent, SamplerConfig, SampleRequest, TokenIds
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm import processes
from gradwire.server.engines.vllm.checks import check_prompt
from gradwire.server.engines.vllm.coalesce import Coalescer, set_interval
from gradwire.server.engines.vllm.errors import engine_dead, translated
from gradwire.server.engines.vllm.manifest import Shapes, check_manifest, folder_shapes
from gradwire.server.engines.vllm.outputs import OutputReader
from gradwire.server.engines.vllm.params import to_vllm
from gradwire.server.engines.vllm.render import Renderer
from gradwire.server.engines.vllm.settings import engine_args, engine_environment, environment, on_cpu
from gradwire.server.engines.weights import InFlightPolicy, MemoryReport, TensorChecksum, WeightManifest
from gradwire.server.errors import FailedPrecondition, GradwireError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestOutputCollector, RequestState

T = TypeVar("T")

SLEEP_TAGS = ("weights", "kv_cache")
LIVENESS_PERIOD_S = 0.5
SHUTDOWN_GRACE_S = 3.0

_start_lock = threading.Lock()  # a start changes os.environ of the whole process for its children


class VllmSampler:
    """A sampling engine; see `SamplerEngine` for the methods. Errors are `GradwireError`s.

    Log-probs are vLLM's raw ones: of the model's distribution before temperature, penalties and
    any restriction of the vocabulary. Sampling parameters never change them.
    """

    def __init__(self, config: SamplerConfig) -> None:
        self.config = config
        self._cpu = False
        self._llm: AsyncLLM | None = None
        self._renderer: Renderer | None = None
        self._info: ModelInfo | None = None
        self._shapes: Shapes = {}
        self._numbers = itertools.count()
        self._coalescer = Coalescer()
        self._lifecycle = asyncio.Lock()  # weight updates, sleep and wake exclude each other
        self._paused = False
        self._asleep: set[str] = set()
        self._sleep_level = 0
        self._transfer_ready = False

    @property
    def info(self) -> ModelInfo:
        """What is served. Valid after `start`."""
        if self._info is None:
            raise Unavailable("ENGINE_NOT_STARTED", "the sampling engine has not been started")
        return self._info

    async def start(self, progress: Progress) -> None:
        """Load the model and start the engine's processes; 10 s and more.

        Raises InvalidArgument when the configuration does not fit the model, GradwireError
        (INTERNAL) when the engine does not come up; the reason is then in the server's log.
        """
        progress(f"starting vLLM for {self.config.model}")
        self._llm = await asyncio.to_thread(self._start_engine)
        self._renderer = await asyncio.to_thread(Renderer, self._folder)
        self._shapes = await asyncio.to_thread(folder_shapes, Path(self._folder))
        self._info = self._describe()
        await self._call(self._engine.update_weight_version("0"))
        progress(f"{self.config.model} is ready: {self._info.dtype}, context {self._info.max_model_len}")

    @property
    def _folder(self) -> str:
        return self.config.model_path or self.config.model

    def _start_engine(self) -> AsyncLLM:
        from vllm.v1.engine.async_llm import AsyncLLM

        self._cpu = on_cpu()
        with _start_lock, environment(engine_environment(self.config, cpu=self._cpu)):
            try:
                return AsyncLLM.from_engine_args(engine_args(self.config, cpu=self._cpu))
            except ValueError as error:  # pydantic's and vLLM's own checks of arguments
                raise InvalidArgument.at("config", str(error)) from error
            except RuntimeError as error:
                raise GradwireError("ENGINE_START_FAILED", f"vLLM did not start: {error}") from error

    def _describe(self) -> ModelInfo:
        model = self._engine.model_config
        renderer = self._tokens
        eos = self._engine.input_processor.generation_config_fields.get("eos_token_id", renderer.eos_token_id)
        eos_ids = (eos,) if isinstance(eos, int) else tuple(eos or ())
        return ModelInfo(
            name=self.config.model,
            path=self._folder,
            max_model_len=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
            dtype=str(model.dtype).removeprefix("torch."),
            eos_token_ids=eos_ids,
            has_chat_template=renderer.has_chat_template,
            max_log_probs=self.config.max_log_probs,
            architecture=model.architecture,
        )

    @property
    def _engine(self) -> AsyncLLM:
        if self._llm is None:
            raise Unavailable("ENGINE_NOT_STARTED", "the sampling engine is not running")
        return self._llm

    @property
    def _tokens(self) -> Renderer:
        if self._renderer is None:
            raise Unavailable("ENGINE_NOT_STARTED", "the sampling engine is not running")
        return self._renderer

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        """Token ids of a text, int32 [T]. Blocks; may be called from any thread."""
        return self._tokens.tokenize(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        """Token ids of a conversation, int32 [T]. Raises InvalidArgument at `messages`."""
        return self._tokens.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)

    def decode(self, token_ids: TokenIds, *, skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        return self._tokens.decode(token_ids, skip_special_tokens=skip_special_tokens)

    async def generate(self, request: SampleRequest) -> AsyncIterator[SampleEvent]:
        """Sample; closing the iterator, or cancelling the task that awaits it, aborts the request.

        While the engine is paused, requests wait. Raises InvalidArgument (fields `prompt.token_ids`
        and `params.*`), FailedPrecondition while asleep, Unavailable when the engine dies.
        """
        self._require_awake(SLEEP_TAGS)
        room = check_prompt(request.prompt_token_ids, self.info)
        queue = await self._add(request, room)
        states = self._states(queue, request.params.n)
        reader = OutputReader(
            len(request.prompt_token_ids),
            prompt_log_probs=request.params.prompt_log_probs,
            log_probs=request.params.log_probs,
            states=states,
        )
        pace, interval = self._coalescer, 1
        pace.open()
        finished = False
        try:
            with translated():
                while not finished:
                    output = queue.get_nowait() or await queue.get()
                    finished = output.finished
                    event = reader.read(output)
                    pace.count(sum(len(delta.token_ids) for delta in event.deltas))
                    if request.stream and interval != pace.interval:
                        interval = pace.interval
                        set_interval(states.values(), interval)
                    yield event
        finally:
            pace.close()
            if not finished:
                await self._engine.abort(queue.request_id, internal=True)
            queue.close()

    async def _add(self, request: SampleRequest, room: int) -> RequestOutputCollector:
        from vllm.inputs.engine import tokens_input

        # Ours, not the caller's: vLLM takes the same id twice and then mixes the two up.
        request_id = f"{request.request_id}-{next(self._numbers)}"
        with translated(request.params):
            prompt = tokens_input([int(token) for token in request.prompt_token_ids], cache_salt=request.cache_salt)
            params = to_vllm(request.params, stream=request.stream, room=room, stream_interval=self._coalescer.interval)
            try:
                return await self._engine.add_request(request_id, prompt, params, priority=int(request.priority))
            except asyncio.CancelledError:
                await self._engine.abort(request_id)  # it may be half in
                raise

    def _states(self, queue: RequestOutputCollector, n: int) -> dict[int, RequestState]:
        """vLLM's records of the request's completions, by index."""
        records = self._engine.output_processor.request_states
        ids = [queue.request_id] if n == 1 else [f"{index}_{queue.request_id}" for index in range(n)]
        states = {index: records[key] for index, key in enumerate(ids) if key in records}
        for state in states.values():
            # Without a tokenizer vLLM does not look up a text for every log-prob; nobody reads it.
            state.logprobs_processor.tokenizer = None
        return states

    async def num_unfinished(self) -> int:
        """Completions the engine still works on or has waiting (n of a request count n)."""
        return int(self._engine.get_num_unfinished_requests())

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes. Running requests are read again from their first token."""
        await self._call(self._engine.reset_prefix_cache(reset_running_requests=True))

    async def pause(self, policy: InFlightPolicy) -> None:
        """Stop sampling until `resume`; new requests wait.

        ABORT ends what runs with finish reason abort, WAIT lets it finish first, KEEP freezes it.
        """
        await self._call(self._engine.pause_generation(mode=policy.value, clear_cache=False))
        self._paused = True

    async def resume(self) -> None:
        """Sample again. Legal when not paused."""
        self._paused = False
        if not self._asleep:
            await self._call(self._engine.resume_generation())

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
            self._require_awake(("weights",))
            with SharedSegment.attach(segment) as mapped:
                if mapped.size < manifest.total_bytes:
                    raise InvalidArgument.at(
                        "manifest.total_bytes", f"{manifest.total_bytes}, but the segment has {mapped.size} bytes"
                    )
                await self._transfer(segment, manifest, version)

    async def _transfer(self, segment: str, manifest: WeightManifest, version: int) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

        llm = self._engine
        tensors = [(t.name, t.dtype, list(t.shape), t.offset, t.nbytes) for t in manifest.tensors]
        try:
            if not self._transfer_ready:
                await self._call(llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info={})))
                self._transfer_ready = True
            await self._call(llm.start_weight_update())
            update = WeightTransferUpdateRequest(update_info={"segment": segment, "tensors": tensors})
            await self._call(llm.update_weights(update))
            await self.reset_prefix_cache()
            # From here on it must not stop half way: a caller that goes away does not stop it.
            await asyncio.shield(self._call(llm.finish_weight_update(str(version))))
        except Unavailable:
            raise
        except BaseException as error:
            await asyncio.shield(self._call(llm.collective_rpc("gradwire_discard_update")))
            if isinstance(error, GradwireError) or not isinstance(error, Exception):
                raise
            raise GradwireError("WEIGHT_UPDATE_FAILED", f"the old weights stay: {error}") from error

    async def weight_version(self) -> int:
        """Version of the weights that sample now; 0 for those of the model's folder."""
        return int(await self._call(self._engine.get_weight_version()))

    async def weight_norm(self) -> float:
        """L2 norm of all parameters, float64 accumulation, tied tensors once."""
        self._require_awake(("weights",))
        squares = await self._call(self._engine.collective_rpc("gradwire_squared_norm"))
        return float(squares[0]) ** 0.5

    async def checksums(self) -> list[TensorChecksum]:
        """Checksums under Hugging Face names, in the engine's dtype, tied tensors once."""
        self._require_awake(("weights",))
        rows = (await self._call(self._engine.collective_rpc("gradwire_checksums")))[0]
        return [TensorChecksum(name, dtype, tuple(shape), sha) for name, dtype, shape, sha in rows]

    async def sleep(self, level: int) -> MemoryReport:
        """Give memory back; running requests end with finish reason abort.

        Level 1 keeps the weights (on the CPU in a file on disk, on a GPU in host memory). Level 2
        drops them: `wake` loads the model's folder, and the weight version is 0 again. Asking twice
        is fine and changes nothing.
        """
        if level not in (1, 2):
            raise InvalidArgument.at("level", f"must be 1 or 2, not {level}")
        async with self._lifecycle:
            before = await self._memory()
            if set(SLEEP_TAGS) != self._asleep:
                if "weights" not in self._asleep:
                    self._sleep_level = level
                self._asleep = set(SLEEP_TAGS)
                await self._call(self._engine.sleep(level, mode="abort"))
            return MemoryReport(before, await self._memory())

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`: all of it (None), or "weights" first and "kv_cache" later.

        Raises InvalidArgument for another tag, FailedPrecondition for kv_cache before weights.
        What is awake already is left alone.
        """
        wanted = set(SLEEP_TAGS if tags is None else tags)
        if unknown := wanted - set(SLEEP_TAGS):
            raise InvalidArgument.at("tags", f"unknown: {sorted(unknown)}; there are {list(SLEEP_TAGS)}")
        async with self._lifecycle:
            before = await self._memory()
            wanted &= self._asleep
            if "kv_cache" in wanted and "weights" in self._asleep - wanted:
                raise FailedPrecondition("WEIGHTS_ASLEEP", 'wake "weights" before "kv_cache"')
            for tag in [tag for tag in SLEEP_TAGS if tag in wanted]:
                await self._wake(tag)
            return MemoryReport(before, await self._memory())

    async def _wake(self, tag: str) -> None:
        last = self._asleep == {tag}
        await self._call(self._engine.wake_up([tag]))
        if tag == "weights" and self._sleep_level == 2:
            if not self._cpu:
                await self._call(self._engine.collective_rpc("gradwire_reload_from_folder"))
            await self._call(self._engine.update_weight_version("0"))
        if last and self._paused:  # vLLM resumes by itself when all is awake
            await self._call(self._engine.pause_generation(mode="keep", clear_cache=False))
        self._asleep.discard(tag)

    def _require_awake(self, tags: Sequence[str]) -> None:
        if self._asleep.intersection(tags):
            raise FailedPrecondition(
                "SAMPLER_ASLEEP", f"asleep: {', '.join(sorted(self._asleep))}; wake it first", subject=self.config.model
            )

    async def _memory(self) -> int:
        return await asyncio.to_thread(self._memory_now)

    def _memory_now(self) -> int:
        return processes.resident_bytes(processes.engine_processes(self._engine))

    async def check_health(self) -> None:
        """Raises Unavailable when a process of the engine is dead."""
        if self._engine.errored:
            raise engine_dead()

    async def _call(self, work: Awaitable[T]) -> T:
        """Await an answer of the engine's processes; Unavailable when they die instead of answering."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=LIVENESS_PERIOD_S))[0]:
                if self._engine.errored:
                    raise engine_dead()
        except BaseException:
            task.cancel()
            raise
        with translated():
            return task.result()

    async def shutdown(self) -> None:
        """Stop the engine's processes; returns when they are gone. Legal twice, and before `start`."""
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(_stop, llm)


def _stop(llm: AsyncLLM) -> None:
    running = processes.engine_processes(llm)
    llm.shutdown(timeout=SHUTDOWN_GRACE_S)
    llm.shutdown = lambda *_: None  # its destructor calls it again, at interpreter exit in vain
    processes.kill_leftovers(running, grace_s=SHUTDOWN_GRACE_S)
