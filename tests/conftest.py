"""What all tests share: one real server with real engines for each process of the run, and the order of the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from gradwire.client import Client
from tests.certificate import Certificate, make_certificate
from tests.originals import Originals
from tests.serving import ServerProcess

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background deaf to Ctrl-C, and its children inherit that: tests send them one.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine may be busy: no example fails for the time that it took. In CI the examples are the same each time, so
# that a red run is the change's fault; elsewhere they are new ones.
settings.register_profile("gradwire", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("gradwire")


# The longest of what cannot be divided go first, so that no process is left alone with one at the end.
LONGEST = ("tests/arctic", "tests/test_docs.py", "tests/e2e/test_training.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (`make test`), a file's tests stay in one of them; so do those of a folder with a server
    for all of it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False  # keep the order of the items
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest groups go first."""
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_group(item.nodeid), len(order)))


def _group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return "tests/arctic" if file.startswith("tests/arctic/") else file


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`gradwire serve --model tiny`, started once. Tests leave it as they found it."""
    from tests.arena.bundles import write_bundles  # onnx is imported by the runs that start a server

    data = tmp_path_factory.mktemp("data")
    write_bundles(data / "bundles")
    running = ServerProcess("--model", "tiny", "--http", "127.0.0.1:0", "--data-dir", str(data))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def originals(server: ServerProcess) -> Iterator[Originals]:
    """The weights of the shared server as it began."""
    with Client(server.address, timeout=120.0) as client:
        yield Originals(client)


@pytest.fixture(autouse=True)
def keep_originals(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that synced weights into the shared server's sampler hands on the original ones: which test comes next
    depends on how the run is divided."""
    if "server" not in request.fixturenames:
        yield
        return
    originals: Originals = request.getfixturevalue("originals")
    yield
    originals.put_back()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For servers and clients on this machine."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the server's log."""
    report = yield
    running = getattr(item, "funcargs", {}).get("server")
    if report.failed and isinstance(running, ServerProcess):
        report.sections.append(("server's log", "\n".join(list(running.log)[-80:])))
    return report
