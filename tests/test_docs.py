"""The Python blocks of README and docs run, page by page, as they are printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradwire.client import Client
from tests.serving import ServerProcess

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_ADDRESS", server.address)
    host, _, port = server.address.rpartition(":")
    # The one thing that differs from what is printed: where the server of this run listens.
    elsewhere = {
        '"127.0.0.1:50051"': repr(server.address),
        "grpc://127.0.0.1:50051": f"grpc://{server.address}",
        "127.0.0.1:8080": server.doors["http"],
        'backend="local"': f'backend="remote", host="{host}", port={port}',
    }
    with Client() as client:
        deployed = {deployment.deployment_id for deployment in client.deployments.list()}
        names = asyncio.run(run_blocks(page, elsewhere))
        for deployment in client.deployments.list():
            if deployment.deployment_id not in deployed:
                client.deployments.undeploy(deployment.deployment_id)
        for job in client.jobs.list():
            if not job.built_in:
                client.jobs.destroy(job)
    if "trained" in names:  # the README's
        assert not [warning for warning in names["trained"].warnings if "teach" in warning]


async def run_blocks(page: Path, elsewhere: dict[str, str]) -> dict[str, Any]:
    """Runs a page's blocks as one program, which may await; the names that it has at its end."""
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, "python"):
        for printed, here in elsewhere.items():
            block = block.replace(printed, here)
        code = compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result
    client = names.get("client")
    if isinstance(client, Client):
        client.close()
    return names


def test_curl_examples_run(server: ServerProcess, tmp_path: Path) -> None:
    (script,) = blocks(ROOT / "docs" / "http.md", "bash")
    script = "set -euo pipefail\n" + script.replace("127.0.0.1:8080", server.doors["http"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = ["services", "completions", "event: end", "JOB_KIND_TRAINING", "numMicroBatches", "gradNorm"]
    places = [done.stdout.find(word) for word in said]
    assert -1 not in places and places == sorted(places), done.stdout


def test_settings_in_the_docs_are_settings() -> None:
    from gradwire.server.config import Settings

    (text,) = blocks(ROOT / "docs" / "operating.md", "toml")
    settings = Settings(**tomllib.loads(text))
    assert settings.limits.max_jobs == 8
    assert settings.tokens[0].scopes == {"INFERENCE", "TRAINING"}  # written small, as on the command line
    (text,) = blocks(ROOT / "docs" / "deployments.md", "toml")
    assert Settings(**tomllib.loads(text)).deployments["helper"].params.max_tokens == 200


def test_what_to_install_is_said_so_that_it_works_from_a_clone() -> None:
    """No package index has gradwire, so `pip install gradwire[...]` finds nothing."""
    files = [path for part in ("client_py", "server", "examples") for path in (ROOT / part).rglob("*.py")]
    wrong = [path for path in PAGES + files if re.search(r"pip install [\"']?gradwire\b", path.read_text())]
    assert not wrong


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[Path, str]]:
    """Files that a page links to, itself included, and the headings in them."""
    found = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose(page))
    return [
        ((page.parent / file).resolve() if file else page, heading)
        for file, heading in found
        if not file.startswith("http")
    ]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    heads = (re.sub(r"[^\w\- ]", "", head.lower()) for head in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE))
    return {head.strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for file, heading in links(page):
        assert file.exists(), file
        assert not heading or heading in anchors(file), f"{file.name} has no heading #{heading}"


def test_a_reader_of_the_readme_finds_every_page() -> None:
    linked = {file for file, _ in links(ROOT / "README.md")}
    assert not {page for page in PAGES[1:] if page not in linked}
