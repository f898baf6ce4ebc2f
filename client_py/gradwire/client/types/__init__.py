"""Results and inputs of the clients: frozen dataclasses, enums and numpy arrays. No protobuf, no gRPC."""
