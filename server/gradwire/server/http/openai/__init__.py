"""OpenAI's API over HTTP: /v1/models, /v1/completions and /v1/chat/completions."""
