"""From what a person typed to a local folder in Hugging Face's layout.

Tried in this order: a built-in model's name (built into the cache on first use), a folder, a hub id. Knows: the
cache folder and how two processes share it. Does not know: how a model is made (catalog.py) or loaded (engines).
"""

import difflib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gradwire.server.models.catalog import CATALOG
from gradwire.server.models.recipes import Recipe
from gradwire.server.packages import ENGINES

Progress = Callable[[str], None]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class ModelNotFoundError(LookupError):
    """No model answers to this name; the text says what was looked for and what there is."""


def resolve_model(name_or_path: str, *, progress: Progress | None = None) -> Path:
    """The local folder of a model: config.json, safetensors and tokenizer files.

    Args:
        name_or_path: a built-in name (`tiny`, `tiny-untied`, `smollm2`), a folder, or a hub id (`owner/name`).
            A built-in name wins over a folder of that name in the working directory; write `./tiny` for the folder.
        progress: told a line before something slow starts.

    Raises:
        ModelNotFoundError: there is no such model, the folder is none, or the hub did not give it.
        RecipeError: a built-in model cannot be built here.
    """
    report = progress or _say_nothing
    recipe = CATALOG.get(name_or_path)
    if recipe is not None:
        return _cached(recipe, report)
    path = _existing(name_or_path)
    if path is not None:
        return _checked_folder(path)
    if HUB_ID.fullmatch(name_or_path):
        return _from_hub(name_or_path, report)
    raise ModelNotFoundError(_unknown(name_or_path))


def cache_root() -> Path:
    """Where built models live: GRADWIRE_CACHE, else `gradwire` in the user's cache folder."""
    if own := os.environ.get("GRADWIRE_CACHE"):
        return Path(own).expanduser()
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(users).expanduser() / "gradwire"


def cached_folder(recipe: Recipe) -> Path:
    """Where a built-in model is, or will be."""
    return cache_root() / "models" / recipe.name / recipe.revision


def _cached(recipe: Recipe, report: Progress) -> Path:
    folder = cached_folder(recipe)
    # The folder appears by one rename, so if it is there it is whole: no lock is needed to use it.
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder.parent / f"{recipe.revision}.lock"):
        if not folder.is_dir():  # another process may have built it while this one waited
            report(f"building {recipe.name} in {folder} (once)")
            _build(recipe, folder)
    return folder


def _build(recipe: Recipe, folder: Path) -> None:
    # Beside its final place, so that the rename stays on one file system.
    partial = Path(tempfile.mkdtemp(prefix=f".{recipe.revision}-", dir=folder.parent))
    try:
        recipe.build(partial)
        _share(partial)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _share(folder: Path) -> None:
    """Readable by all: temporary folders and some writers' files are private, which would spoil a shared cache."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """One process at a time. The kernel drops the lock when its holder dies, so none is ever left behind."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _existing(name: str) -> Path | None:
    """What stands at a path, if it is one: a caller may send any text."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None  # Path("") would be the working directory
    except (OSError, RuntimeError):  # too long for a path, not to be looked into; the home of no user
        return None


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        raise ModelNotFoundError(f"{path} is a file; a model is a folder with config.json and safetensors files")
    if not (path / "config.json").is_file():
        raise ModelNotFoundError(f"{path} holds no config.json, so it is not a model folder in Hugging Face's layout")
    if not any(path.glob("*.safetensors")):
        raise ModelNotFoundError(
            f"{path} holds no *.safetensors file; weights in other formats are not read (a pickle can run code)"
        )
    return path.resolve()


def _from_hub(hub_id: str, report: Progress) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelNotFoundError(
            f"{hub_id} looks like a hub id, but huggingface_hub, which comes with the engines, is not installed: "
            f"in gradwire's source folder, {ENGINES}. {_built_in()}"
        ) from None
    report(f"fetching {hub_id} from the hub")
    try:
        folder = snapshot_download(hub_id, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"])
    # Anything may come out of the network layers below; the user needs one sentence, with the cause chained.
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ModelNotFoundError(
            f"{hub_id} is no folder here, and the hub did not give it "
            f"({type(error).__name__}: {reason[0] if reason else 'no reason given'}). {_built_in()}"
        ) from error
    return _checked_folder(Path(folder))


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, CATALOG, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"no model {name!r}: it is no built-in model, no folder and no hub id (owner/name).{hint} {_built_in()}"


def _built_in() -> str:
    return f"Built-in models: {', '.join(CATALOG)}."


def _say_nothing(_: str) -> None:
    return None
