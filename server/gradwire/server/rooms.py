"""Composition of what is behind the doors: jobs, weights, rollouts, deployments, conversations, tokens."""

from __future__ import annotations

from dataclasses import dataclass

from gradwire.server.config import Settings
from gradwire.server.domain.authentication import Authenticator, ConfiguredToken
from gradwire.server.domain.caller import Caller
from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.hidden_states import HiddenStates
from gradwire.server.domain.inference import Inference
from gradwire.server.domain.registry import EngineFactory, JobRegistry
from gradwire.server.domain.rollouts.following import Limits
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.domain.sessions import SessionReader
from gradwire.server.domain.turns import Turns
from gradwire.server.domain.updates import WeightUpdates
from gradwire.server.domain.uploads import UploadStore
from gradwire.server.domain.weights import WeightSync
from gradwire.server.engines.policy import load_policy
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.storage.database import Database
from gradwire.server.storage.deployments import DatabaseDeployments
from gradwire.server.storage.sessions import DatabaseSessions
from gradwire.server.storage.tokens import DatabaseTokens


@dataclass(frozen=True, slots=True)
class Rooms:
    """What is behind the doors, all of it shared by all doors."""

    jobs: JobRegistry
    sync: WeightSync
    updates: WeightUpdates
    uploads: UploadStore
    checkpoints: CheckpointStore
    rollouts: RolloutStore
    deployments: Deployments
    deployer: Deployer
    inference: Inference
    turns: Turns
    sessions: SessionReader
    tokens: DatabaseTokens
    authenticator: Authenticator


def furnish(settings: Settings, engines: EngineFactory, database: Database, metrics: CallMetrics) -> Rooms:
    """All of them, empty. Nothing starts, and the database need not be open."""
    jobs = JobRegistry(engines, max_jobs=settings.limits.max_jobs)
    checkpoints = CheckpointStore(settings.data_dir / "checkpoints")
    sync = WeightSync(checkpoints.origin)
    updates = WeightUpdates(sync)
    rollouts = _rollouts(settings, metrics)
    jobs.on_destroy += [updates.forget, sync.forget, rollouts.end_job]
    jobs.on_sleep += [sync.release]
    deployments, states = Deployments(), HiddenStates()
    deployer = Deployer(deployments, jobs, DatabaseDeployments(database), load_policy, settings.bundles)
    deployer.on_end.append(states.forget)
    conversations, tokens = DatabaseSessions(database), DatabaseTokens(database)
    turns = Turns(conversations)
    return Rooms(
        jobs=jobs,
        sync=sync,
        updates=updates,
        uploads=UploadStore(
            max_upload_bytes=settings.limits.max_upload_bytes, capacity=settings.limits.max_stored_upload_bytes
        ),
        checkpoints=checkpoints,
        rollouts=rollouts,
        deployments=deployments,
        deployer=deployer,
        inference=Inference(deployments, turns, states),
        turns=turns,
        sessions=SessionReader(conversations),
        tokens=tokens,
        authenticator=Authenticator(
            _configured_tokens(settings),
            tokens if settings.wants_tokens else None,
            lambda reason: metrics.auth_failures.labels(reason).inc(),
        ),
    )


def _rollouts(settings: Settings, metrics: CallMetrics) -> RolloutStore:
    limits = settings.limits
    store = RolloutStore(
        Limits(limits.max_rollouts, limits.max_rollout_bytes, limits.rollout_retention_seconds), metrics.rollout_ended
    )
    metrics.rollouts.set_function(store.__len__)
    metrics.rollout_bytes.set_function(lambda: store.num_bytes)
    return store


def _configured_tokens(settings: Settings) -> list[ConfiguredToken]:
    return [
        ConfiguredToken(token.sha256, Caller(token.tenant, token.name, token.scopes, user=f"user:{token.name}"))
        for token in settings.tokens
    ]
