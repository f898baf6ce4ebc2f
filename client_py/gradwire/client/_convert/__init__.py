"""Between the clients' dataclasses and protobuf. Nothing else of the client touches a field of a message."""
