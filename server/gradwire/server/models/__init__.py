"""Models by name: where the weights that the engines load come from.

Knows: the built-in models, the cache that they are built into, and how to turn what a person typed into
a folder in Hugging Face's layout. Does not know: the engines, gRPC, or who may load which model.
"""

from gradwire.server.models.resolve import ModelNotFoundError, cache_root, resolve_model

__all__ = ["ModelNotFoundError", "cache_root", "resolve_model"]
