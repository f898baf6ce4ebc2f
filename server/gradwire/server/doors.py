"""Composition of the HTTP doors that other clients know, beside gRPC's own over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from gradwire.server.config import Settings
from gradwire.server.http.arena.door import ArenaDoor
from gradwire.server.http.arena.handlers import handlers
from gradwire.server.http.body import BodyLimits
from gradwire.server.http.openai.door import OpenAiDoor
from gradwire.server.http.openai.recording import Recorder
from gradwire.server.http.server import Door
from gradwire.server.listening import message_cap
from gradwire.server.rooms import Rooms
from gradwire.server.rpc.interceptors.step import Chain


def known_doors(settings: Settings, rooms: Rooms, chain: Chain, count: Callable[[int], None]) -> list[Door]:
    """OpenAI's and the Arena's. `count` is told how many tokens were sampled."""
    limits = BodyLimits(message_cap(settings), settings.limits.http_read_seconds)
    recorder = Recorder(rooms.jobs, rooms.rollouts)
    arena = handlers(rooms.deployments, rooms.deployer, rooms.inference, rooms.sessions, chain, count)
    guarded = settings.wants_tokens
    return [
        OpenAiDoor(recorder, chain, count, limits=limits, guarded=guarded, profile=settings.openai_profile),
        ArenaDoor(arena, chain, limits=limits, guarded=guarded),
    ]
