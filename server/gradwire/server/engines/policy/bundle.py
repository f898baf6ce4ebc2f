"""Reads and writes bundles: a folder, or one zip file, of manifest.json and the ONNX files that it lists.

A bundle is untrusted. Everything is read into memory under limits, from regular files directly in it, and compared with
the sizes and checksums of the manifest; nothing is unpacked to disk, and nothing in it is code.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gradwire.server.engines.policy.manifest import MANIFEST, BundleError, Manifest, parse_manifest

MAX_MANIFEST_BYTES = 16 * 2**20
MAX_BUNDLE_BYTES = 2**30
MAX_FILES = 257


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle in memory, its files checked against its manifest."""

    manifest: Manifest
    files: Mapping[str, bytes]


def read_bundle(path: Path, *, max_bytes: int = MAX_BUNDLE_BYTES) -> Bundle:
    """The bundle in a folder or zip file. BundleError names the file and field that is wrong."""
    try:
        if path.is_dir():
            return _read(_Folder(path), max_bytes)
        with _opened(path) as file, zipfile.ZipFile(file) as archive:
            return _read(_Zip(archive), max_bytes)
    except FileNotFoundError as error:
        raise BundleError(path.name, "", "does not exist") from error
    # zipfile's own: RuntimeError for an encrypted file, NotImplementedError for a compression that it does not know.
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) else error  # the whole of an OSError tells where it lies
        raise BundleError(path.name[:200], "", f"is neither a folder nor a zip file that can be read: {why}") from error


def _opened(path: Path, flags: int = 0) -> BinaryIO:
    """A regular file. O_NONBLOCK: a pipe must not hang us, and a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise BundleError(path.name[:200], "", "is no regular file")
    return file


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Writes a zip file when `path` ends in .zip, else a folder; makes the folders above. FileExistsError when
    something is there."""
    content = {MANIFEST: bundle.manifest.model_dump_json(indent=2, exclude_defaults=False).encode(), **bundle.files}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with path.open("xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                # A fixed date: the same policy makes the same bytes.
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return
    path.mkdir()
    for name, data in content.items():
        (path / name).write_bytes(data)


def _read(source: _Folder | _Zip, max_bytes: int) -> Bundle:
    names = source.names()
    if MANIFEST not in names:
        raise BundleError(MANIFEST, "", "is missing")
    manifest = parse_manifest(source.read(MANIFEST, MAX_MANIFEST_BYTES))
    unlisted = sorted(names - {MANIFEST} - set(manifest.files))
    if unlisted:
        raise BundleError(unlisted[0], "", "is not listed in the manifest; a bundle holds nothing else")
    total = sum(file.bytes for file in manifest.files.values())
    if total > max_bytes:
        raise BundleError(MANIFEST, "files", f"add up to {total} bytes; at most {max_bytes} are taken")
    files: dict[str, bytes] = {}
    for name, file in manifest.files.items():
        if name not in names:
            raise BundleError(name, "", "is listed in the manifest but missing")
        data = source.read(name, file.bytes)
        if len(data) != file.bytes:
            raise BundleError(name, "bytes", f"is {file.bytes} in the manifest, but the file has {len(data)}")
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.sha256:
            raise BundleError(name, "sha256", f"is {file.sha256} in the manifest, but the file's is {digest}")
        files[name] = data
    return Bundle(manifest, files)


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> set[str]:
        names = set()
        with os.scandir(self._path) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    raise BundleError(entry.name, "", "is no regular file; folders and links are not taken")
                names.add(entry.name)
                if len(names) > MAX_FILES:
                    raise BundleError(self._path.name, "", f"has more than {MAX_FILES} files")
        return names

    def read(self, name: str, limit: int) -> bytes:
        try:
            with _opened(self._path / name, os.O_NOFOLLOW) as file:  # what `names` saw may have been replaced since
                data = file.read(limit + 1)
        except OSError as error:
            raise BundleError(name, "", f"cannot be read: {error.strerror}") from error
        return _within(name, data, limit)


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def names(self) -> set[str]:
        entries = self._archive.infolist()
        if len(entries) > MAX_FILES:
            raise BundleError(MANIFEST, "", f"stands among {len(entries)} entries; at most {MAX_FILES} are taken")
        names = set()
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG) or entry.is_dir() or "/" in entry.filename or "\\" in entry.filename:
                raise BundleError(entry.filename[:200], "", "is no regular file directly in the bundle")
            if entry.filename in names:
                raise BundleError(entry.filename[:200], "", "stands twice in the zip file")
            names.add(entry.filename)
        return names

    def read(self, name: str, limit: int) -> bytes:
        # The sizes in a zip file may lie: what comes out is counted.
        with self._archive.open(name) as file:
            return _within(name, file.read(limit + 1), limit)


def _within(name: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise BundleError(name, "bytes", f"has more than {limit}, which the manifest or a limit allows")
    return data
