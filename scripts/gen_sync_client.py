"""Writes the sync clients from the async ones: `python scripts/gen_sync_client.py [--check]`.

Knows: that a public method of an Async class becomes one of the same signature and docstring, which runs it
on the shared loop. Does not know: what any method does. A test runs --check, which fails when a committed
file is not what this script writes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "client_py" / "gradwire" / "client"
MODULES = (
    "admin",
    "deployments",
    "inference",
    "jobs",
    "rollouts",
    "sampling",
    "sessions",
    "streams",
    "training",
    "weights",
)
# Written by hand: the base of the sync streams.
BASES = {"AsyncStream"}
HEADER = (
    '"""{doc}\n\nGenerated from `gradwire.client.aio.{name}` by scripts/gen_sync_client.py; edit that instead.\n"""\n\n'
)


def main() -> int:
    """Writes all modules, or with --check says which are stale; the exit code."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name in MODULES:
        target = CLIENT / "sync" / f"{name}.py"
        text = formatted(generate(name), target)
        if not target.exists() or target.read_text() != text:
            stale.append(target)
            if not check:
                target.write_text(text)
    for target in stale:
        print(f"{'stale' if check else 'wrote'}: {target.relative_to(ROOT)}")
    return 1 if check and stale else 0


def generate(name: str) -> str:
    """The sync twin of one async module, not yet formatted."""
    module = ast.parse((CLIENT / "aio" / f"{name}.py").read_text())
    classes = [node for node in module.body if isinstance(node, ast.ClassDef) and is_twin(node)]
    bodies = [class_text(node) for node in classes]
    code = "\n\n".join(bodies)
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    defined = {twin(node.name) for node in classes}
    lines = ["from __future__ import annotations"]
    lines += sorted(imports(module, name, used - defined))
    doc = (ast.get_docstring(module) or "").splitlines()[0]
    return HEADER.format(doc=doc, name=name) + "\n".join(lines) + "\n\n\n" + code + "\n"


def is_twin(node: ast.ClassDef) -> bool:
    return node.name.startswith("Async") and node.name not in BASES


def twin(name: str) -> str:
    return name.removeprefix("Async")


def imports(module: ast.Module, name: str, used: set[str]) -> list[str]:
    """Import lines for `used`: what the async module imports, and the async and sync classes themselves."""
    lines = []
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            lines += [f"from {node.module} import {alias.name}" for alias in node.names if alias.name in used]
    lines += [f"from gradwire.client.aio.{name} import {n}" for n in used if n.startswith("Async") and n not in BASES]
    if "Portal" in used:
        lines.append("from gradwire.client.sync.portal import Portal")
    if "Stream" in used:
        lines.append("from gradwire.client.sync.base import Stream")
    lines += [
        f"from gradwire.client.sync.streams import {n}"
        for n in used
        if n.endswith(("Stream", "Watch")) and n != "Stream" and not n.startswith("Async")
    ]
    if "OpenRollout" in used:
        lines.append("from gradwire.client.sync.opened import OpenRollout")
    return list(dict.fromkeys(lines))


def class_text(node: ast.ClassDef) -> str:
    """A sync class."""
    bases = ", ".join(sync_base(base) for base in node.bases)
    stream = bool(bases)
    lines = [f"class {twin(node.name)}{f'({bases})' if bases else ''}:", docstring(node, 1)]
    if stream:
        lines.append(f"    _async: {node.name}\n")
    else:
        lines.append(f"    def __init__(self, client: {node.name}, loop: Portal) -> None:")
        lines.append("        self._async = client\n        self._loop = loop\n")
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
            lines.append(method_text(item))
    return "\n".join(lines) + "\n"


def sync_base(base: ast.expr) -> str:
    return ast.unparse(base).replace("AsyncStream", "Stream").replace("AsyncCompletionStream", "CompletionStream")


def method_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A sync method: same signature, same docstring, run on the loop."""
    returns = ast.unparse(node.returns) if node.returns else "None"
    head = "".join(f"    @{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    head += f"    def {node.name}({ast.unparse(node.args)}) -> {returns.replace('Async', '')}:\n{docstring(node, 2)}\n"
    if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
        return head + f"        return self._async.{node.name}\n"
    call = f"self._async.{node.name}({arguments(node.args)})"
    if isinstance(node, ast.FunctionDef):
        return head + f"        return {returns.removeprefix('Async')}(self._loop.call(lambda: {call}), self._loop)\n"
    body = ""
    if "on_progress" in (arg.arg for arg in node.args.kwonlyargs):
        reported = call.replace("on_progress=on_progress", "on_progress=report")
        body = "        if on_progress is not None:\n"
        body += f"            return self._loop.relay(lambda report: {reported}, on_progress)\n"
    keyword = "" if returns == "None" else "return "
    return head + body + f"        {keyword}self._loop.run({call})\n"


def arguments(args: ast.arguments) -> str:
    """The call that hands all arguments on."""
    parts = [arg.arg for arg in args.args if arg.arg != "self"]
    parts += [f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs]
    if args.kwarg:
        parts.append(f"**{args.kwarg.arg}")
    return ", ".join(parts)


def docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, depth: int) -> str:
    """The node's docstring, as it is written."""
    indent = "    " * depth
    lines = (ast.get_docstring(node) or "").splitlines()
    text = ("\n" + indent).join(lines).replace("\n" + indent + "\n", "\n\n")
    return f'{indent}"""{text}' + (f'\n{indent}"""' if len(lines) > 1 else '"""')


def formatted(code: str, target: Path) -> str:
    """`code` as ruff would leave it."""
    name = ["--stdin-filename", str(target), "-"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I"], ["format", "--quiet"]):
        run = [sys.executable, "-m", "ruff", *command, *name]
        code = subprocess.run(run, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


if __name__ == "__main__":
    sys.exit(main())
