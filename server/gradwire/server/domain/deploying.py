"""How deployments come and go: made, kept, replaced without dropping a request, and made again at the next start.
Other servers of the same database follow.

Knows: names, versions, the memory scope that sticks to a name, where bundles may lie. Does not know: how requests are
answered, databases (`DeploymentStore` is one), ONNX.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradwire.server.domain.caller import LOCAL_CALLER, Caller
from gradwire.server.domain.deployment_records import DeploymentRecord, DeploymentStore, change, failed, record_of
from gradwire.server.domain.deployments import (
    Deployment,
    DeploymentKind,
    Deployments,
    LanguageModel,
    PolicyBundle,
    Source,
    taken,
)
from gradwire.server.domain.params import check_defaults
from gradwire.server.domain.registry import JobRegistry
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.engines.acting import ActingEngine
from gradwire.server.errors import FailedPrecondition, FieldViolation, GradwireError, InvalidArgument

log = logging.getLogger(__name__)

REFRESH_S = 5.0
"""For so long a change by another server can go unnoticed."""
PolicyLoader = Callable[[Path], Awaitable[ActingEngine]]
"""Reads, checks and loads a bundle. Raises InvalidArgument, whose fields are those of the bundle."""


class Deployer:
    """Makes and ends the deployments of one server."""

    def __init__(
        self,
        deployments: Deployments,
        jobs: JobRegistry,
        store: DeploymentStore,
        load: PolicyLoader,
        bundle_root: Path,
    ) -> None:
        self._deployments = deployments
        self._jobs = jobs
        self._store = store
        self._load = load
        self._root = bundle_root
        self._changing: dict[str, asyncio.Lock] = {}
        self._changes: Counter[str] = Counter()  # under way and waiting, by name
        self._tasks: set[asyncio.Task[Any]] = set()
        self.on_end: list[Callable[[str], None]] = []
        """Told the instance_id of each version that answers no more."""

    async def deploy(
        self,
        caller: Caller,
        deployment_id: str,
        source: Source,
        *,
        memory_scope: MemoryScope | None = None,
        replacing: bool = False,
        configured: bool = False,
    ) -> Deployment:
        """The deployment, which answers from now on.

        It goes on when the caller leaves. `configured`: it is of the operator's settings, so its bundle may lie
        anywhere, and it is not kept. Raises InvalidArgument, AlreadyExists, NotFound, FailedPrecondition; on any error
        what was deployed before goes on.
        """
        work = self._deploy(caller, deployment_id, source, memory_scope, replacing, configured)
        return await asyncio.shield(self._background(work))

    async def undeploy(self, deployment_id: str) -> bool:
        """End a deployment; whether there was one. Requests under way finish."""
        return await asyncio.shield(self._background(self._undeploy(deployment_id)))

    async def restore(self, without: Collection[str] = ()) -> None:
        """Make again what was kept, `without` names that the settings deploy anew. What cannot be made is there as
        failed, with the reason."""
        for record in await self._store.all():
            if record.source is not None and record.deployment_id not in without:
                self._deployments.put(await self._made_again(record, record.source))

    async def refresh_forever(self) -> None:
        """Follow, every few seconds and until cancelled, what other servers of the same database change."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except GradwireError as error:  # the database is away; the next look may find it
                log.warning("other servers' deployments cannot be seen now: %s", error.message)
            except Exception:  # a bug met with one name must not end the looking for good
                log.exception("other servers' deployments cannot be seen")

    async def refresh(self) -> None:
        """Follow what other servers have changed. Deployments of this server's settings, and of jobs, stay."""
        for record in await self._store.all():
            if record.is_news(self._deployments.get(record.deployment_id)):
                await asyncio.shield(self._background(self._follow(record.deployment_id)))

    async def close(self) -> None:
        """Ends what deployments hold, after the changes under way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        for deployment in self._deployments.all():
            if deployment.engine is not None:
                await deployment.engine.close()

    async def _deploy(
        self,
        caller: Caller,
        deployment_id: str,
        source: Source,
        memory_scope: MemoryScope | None,
        replacing: bool,
        configured: bool,
    ) -> Deployment:
        async with self._one_at_a_time(deployment_id):
            if not replacing:
                self._deployments.require_free(deployment_id)
            before = await self._store.find(deployment_id)
            if not replacing and before is not None and before.source is not None:  # another server's, not seen yet
                raise taken(deployment_id)
            scope = _scope(source, memory_scope, before)
            made = await self._make(caller, deployment_id, source, trusted=configured)
            made.version = before.version + 1 if before else 1
            made.memory_scope = MemoryScope.NONE if scope is None or made.engine is not None else scope
            made.deployed_at = time.time_ns() // 1000
            made.configured = configured
            try:
                await self._store.put(record_of(made, scope))
            except BaseException:
                await self._retire(made)
                raise
            self._retire_later(self._deployments.put(made))
        kept_no_longer = configured and before is not None and before.source is not None
        log.log(logging.WARNING if kept_no_longer else logging.INFO, "%s", change(made, before))
        return made

    async def _undeploy(self, deployment_id: str) -> bool:
        async with self._one_at_a_time(deployment_id):
            record = await self._store.find(deployment_id)
            kept = record is not None and record.source is not None
            if record is not None and kept:
                await self._store.put(replace(record, source=None))
            removed = self._deployments.remove(deployment_id)
            self._retire_later(removed)
        return kept or removed is not None

    async def _follow(self, deployment_id: str) -> None:
        async with self._one_at_a_time(deployment_id):
            record = await self._store.find(deployment_id)  # a change of this server's own may have come first
            if record is None or not record.is_news(self._deployments.get(deployment_id)):
                return
            if record.source is None:
                self._retire_later(self._deployments.remove(deployment_id))
                log.info("another server undeployed %s", deployment_id)
            else:
                self._retire_later(self._deployments.put(await self._made_again(record, record.source)))
                log.info("another server deployed %s, version %d", deployment_id, record.version)

    async def _made_again(self, record: DeploymentRecord, source: Source) -> Deployment:
        try:
            return await self._remake(record, source)
        except GradwireError as error:
            log.error("deployment %s cannot be made again: %s", record.deployment_id, error.message)
            return failed(record, source, error.message)
        except Exception:  # a bundle that breaks its runtime must not keep the others from serving
            log.exception("deployment %s cannot be made again", record.deployment_id)
            return failed(record, source, "it could not be loaded; the server's log has the reason")

    async def _make(self, caller: Caller, deployment_id: str, source: Source, *, trusted: bool) -> Deployment:
        if isinstance(source, LanguageModel):
            return self._make_llm(caller, deployment_id, source)
        engine = await self._loaded(source, caller, trusted=trusted)
        return Deployment(
            deployment_id,
            kind=DeploymentKind(engine.info.kind),
            source=source,
            tenant=caller.tenant,
            engine=engine,
        )

    def _make_llm(self, caller: Caller, deployment_id: str, source: LanguageModel) -> Deployment:
        job = self._jobs.sampling(source.job_id, caller, field="language_model.job_id")
        if source.training_job_id:
            self._jobs.training(source.training_job_id, caller, field="language_model.training_job_id")
        check_defaults(source.params, "language_model.params")
        if job is self._jobs.built_in:
            source = replace(source, job_id=0)  # which is there at the next start, too
        return Deployment(deployment_id, source=source, tenant=caller.tenant, job=job)

    async def _loaded(self, source: PolicyBundle, caller: Caller, *, trusted: bool) -> ActingEngine:
        path = bundle_path(self._root, source.bundle, anywhere=trusted)
        try:
            return await self._load(path)
        except InvalidArgument as error:
            if "ADMIN" in caller.scopes and _is_missing(path):  # others need not know where it would lie
                raise InvalidArgument.at("policy.bundle", f"{path} does not exist", reason=error.reason) from error
            violations = [FieldViolation("policy.bundle", f"{v.field}: {v.description}") for v in error.violations]
            raise InvalidArgument(violations, reason=error.reason) from error

    async def _remake(self, record: DeploymentRecord, source: Source) -> Deployment:
        if record.job:
            raise FailedPrecondition(
                "JOB_ENDED",
                f"it is of {record.job}, which ended with its server, or is another server's; deploy it again",
            )
        # Its failure is shown to whoever may see deployments: to no administrator in particular.
        caller = replace(LOCAL_CALLER, tenant=record.tenant, scopes=frozenset())
        made = await self._make(caller, record.deployment_id, source, trusted=False)
        made.version, made.deployed_at = record.version, record.deployed_at
        made.memory_scope = record.memory_scope if made.job is not None and record.memory_scope else MemoryScope.NONE
        return made

    @asynccontextmanager
    async def _one_at_a_time(self, deployment_id: str) -> AsyncIterator[None]:
        """Changes of one name wait for each other. A name leaves nothing behind: it may be one that never was."""
        self._changes[deployment_id] += 1
        try:
            async with self._changing.setdefault(deployment_id, asyncio.Lock()):
                yield
        finally:
            self._changes[deployment_id] -= 1
            if not self._changes[deployment_id]:
                del self._changes[deployment_id], self._changing[deployment_id]

    def _retire_later(self, deployment: Deployment | None) -> None:
        if deployment is not None:
            self._background(self._retire(deployment))

    async def _retire(self, deployment: Deployment) -> None:
        await deployment.until_idle()
        if deployment.engine is not None:
            await deployment.engine.close()
        for told in self.on_end:
            told(deployment.instance_id)

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def bundle_path(root: Path, bundle: str, *, anywhere: bool = False) -> Path:
    """Where a bundle lies. Raises InvalidArgument unless that is inside of the root, links followed, or may be
    `anywhere`."""
    try:
        base = root.expanduser().resolve()
        path = (base / (Path(bundle).expanduser() if anywhere else bundle)).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidArgument.at("policy.bundle", "is no path") from error
    if not anywhere and (not path.is_relative_to(base) or path == base):
        raise InvalidArgument.at("policy.bundle", "must be a folder or zip file inside of the server's bundle_root")
    return path


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _scope(source: Source, asked: MemoryScope | None, before: DeploymentRecord | None) -> MemoryScope | None:
    """Who sees the conversations: chosen once for a name, so that a redeployment shows nobody another's."""
    chosen = before.memory_scope if before else None
    if isinstance(source, PolicyBundle):
        if asked is not None:
            raise InvalidArgument.at("memory_scope", "is for language models; a policy holds no conversations")
        return chosen
    if chosen is None:
        return MemoryScope.USER if asked is None else asked
    if asked not in (None, chosen):
        assert before is not None
        raise FailedPrecondition(
            "MEMORY_SCOPE_FIXED",
            f"memory_scope: {before.deployment_id!r} was first deployed with {chosen.value!r}, which stays; leave it "
            "out, or take another name",
            subject=f"deployment/{before.deployment_id}",
        )
    return chosen
