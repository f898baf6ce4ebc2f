"""A channel over HTTP/1.1 by the Connect protocol, in place of grpc.aio's: for networks that pass nothing else."""
