"""The folders of a server, made at its start."""

from __future__ import annotations

import logging
import stat

from gradwire.server.config import Settings

log = logging.getLogger(__name__)


def make_folders(settings: Settings) -> None:
    """The data folder and the bundles in it, for the owner alone. What cannot be made, or is another's to make, is
    a warning: a server may have no use for it."""
    if settings.bundle_root is not None:
        if not settings.bundle_root.expanduser().is_dir():
            log.warning("bundle_root: there is no folder %s; callers cannot deploy bundles", settings.bundle_root)
        return
    try:
        for folder in (settings.data_dir, settings.bundles):
            folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("cannot make the folder for bundles, %s: %s", settings.bundles, error.strerror)
