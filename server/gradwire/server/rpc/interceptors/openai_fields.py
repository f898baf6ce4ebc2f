"""The fields of OpenAI's requests, with vLLM's own: names that a log may hold, whoever sent them."""

from __future__ import annotations

OPENAI = "/gradwire.openai.v1/"
# fmt: off
OPENAI_FIELDS = frozenset({
    "add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt", "chat_template",
    "chat_template_kwargs", "continue_final_message", "detokenize", "documents", "echo", "frequency_penalty",
    "ignore_eos", "include_reasoning", "include_stop_str_in_output", "length_penalty", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "messages", "min_p", "min_tokens", "model", "model_name", "n",
    "parallel_tool_calls", "presence_penalty", "priority", "prompt", "prompt_embeds", "prompt_logprobs",
    "reasoning_effort", "repetition_penalty", "request_id", "response_format", "return_token_ids",
    "return_tokens_as_token_ids", "seed", "skip_special_tokens", "spaces_between_special_tokens", "stop",
    "stop_token_ids", "stream", "stream_options", "structured_outputs", "suffix", "temperature",
    "thinking_token_budget", "tool_choice", "tools", "top_k", "top_logprobs", "top_p", "truncate_prompt_tokens",
    "use_beam_search", "user",
})
# fmt: on
