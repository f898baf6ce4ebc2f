"""The Connect protocol (https://connectrpc.com/docs/protocol): every RPC as an HTTP POST, in protobuf or JSON."""
