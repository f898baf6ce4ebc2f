"""Composition of the HTTP doors that other clients know, beside gRPC's own over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradwire.server.config import Settings
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.inference import Inference
from gradwire.server.domain.sessions import SessionReader
from gradwire.server.http.arena.door import ArenaDoor
from gradwire.server.http.arena.handlers import handlers
from gradwire.server.http.connect.body import BodyLimits
from gradwire.server.http.openai.door import OpenAiDoor
from gradwire.server.http.openai.recording import Recorder
from gradwire.server.http.server import Door
from gradwire.server.rpc.interceptors.step import Chain


@dataclass(frozen=True, slots=True)
class Rooms:
    """What is behind the doors."""

    recorder: Recorder
    deployments: Deployments
    deployer: Deployer
    inference: Inference
    sessions: SessionReader


def known_doors(
    settings: Settings, rooms: Rooms, chain: Chain, count: Callable[[int], None], limits: BodyLimits
) -> list[Door]:
    """OpenAI's and the Arena's. `count` is told how many tokens were sampled."""
    arena = handlers(rooms.deployments, rooms.deployer, rooms.inference, rooms.sessions, chain, count)
    guarded = settings.wants_tokens
    return [
        OpenAiDoor(rooms.recorder, chain, count, limits=limits, guarded=guarded, profile=settings.openai_profile),
        ArenaDoor(arena, chain, limits=limits, guarded=guarded),
    ]
