"""The part of a field's path that the contract has: what a caller wrote, such as a key of a map, is none of it."""

from __future__ import annotations

import re

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor

from gradwire.server.rpc.interceptors.openai_fields import OPENAI, OPENAI_FIELDS

_FIRST = re.compile(r"([a-z_]+)(?:\[\d{1,9}\]|\.\d{1,9}(?![^.]))?")
_INDEX = re.compile(r"(\[\d{1,9}\])?$")


def known_part(method: str, path: str) -> str:
    """The beginning of `path` (`prompts[3].token_ids`) for as long as it names fields of the method's request.

    Of OpenAI's API the first part alone; empty for a method of another one.
    """
    if method.startswith(OPENAI):
        found = _FIRST.match(path)
        return found[0] if found and found[1] in OPENAI_FIELDS else ""
    message = _request(method)
    known: list[str] = []
    for part in path.split("."):
        name = part.partition("[")[0]
        field = message.fields_by_name.get(name) if message is not None else None
        if field is None:
            break
        known.append(part if _INDEX.match(part, len(name)) else name)
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        message = None if entry else field.message_type
    return ".".join(known)


def _request(method: str) -> Descriptor | None:
    service, _, name = method.strip("/").rpartition("/")
    try:
        return descriptor_pool.Default().FindServiceByName(service).methods_by_name[name].input_type
    except (KeyError, TypeError, UnicodeError):
        return None
