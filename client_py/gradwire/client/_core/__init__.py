"""The async core: one channel, its calls, retries and errors. Everything else of the client sits on it."""
