"""Jobs, operations, leases, weight versions: what the server is about, without gRPC or torch."""
