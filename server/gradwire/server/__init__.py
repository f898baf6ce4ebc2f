"""The gradwire server: one process that samples, trains and moves weights, behind gRPC."""
