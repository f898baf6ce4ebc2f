"""Policies and supervised models on ONNX Runtime, from a bundle without code.

`bundle` reads what `manifest` and `spaces` describe, `network` runs it, `values` checks what callers send, `heads`
makes actions of its outputs, `batcher` joins callers, and `engine` is the front of all of it.
"""
