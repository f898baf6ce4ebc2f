"""Which handler answers which route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.inference import Inference
from gradwire.server.domain.sessions import SessionReader
from gradwire.server.http.arena import policies, status
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked
from gradwire.server.http.arena.control import Control
from gradwire.server.http.arena.conversations import Conversations
from gradwire.server.http.arena.paths import Route
from gradwire.server.http.arena.texts import Texts
from gradwire.server.rpc.interceptors.step import Chain

Handler = Callable[[Asked, Answer], Awaitable[None]]


def handlers(
    deployments: Deployments,
    deployer: Deployer,
    inference: Inference,
    sessions: SessionReader,
    chain: Chain,
    count: Callable[[int], None],
) -> Mapping[Route, Handler]:
    """One for each route. `count` is told how many tokens were sampled."""
    texts = Texts(inference, chain, count)
    conversations = Conversations(deployments, sessions)
    control = Control(deployments, deployer)
    return {
        Route.STATUS: lambda asked, answer: status.get(inference, asked, answer),
        Route.ACTION: lambda asked, answer: policies.act(inference, asked, answer),
        Route.PREDICT: lambda asked, answer: policies.predict(inference, asked, answer),
        Route.GENERATE: texts.whole,
        Route.STREAM: texts.stream,
        Route.SESSIONS: conversations.all,
        Route.SESSION: conversations.one,
        Route.FORGET: conversations.delete,
        Route.DEPLOYMENTS: control.all,
        Route.DEPLOYMENT: control.one,
        Route.DEPLOY: control.deploy,
    }
