"""OpenAI's completions and chat completions by vLLM's own serving classes, on the engine that everything else uses."""
