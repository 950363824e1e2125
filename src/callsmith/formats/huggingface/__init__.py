"""Hugging Face's `response_template`, by which a tokenizer's settings say how answers are parsed, as a `Format` and back.

    {
      "start_anchor": "<|im_start|>assistant\\n",
      "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": "</think>\\\\s*"},
        "tool_calls": {
          "open": "<tool_call>", "close_pattern": "</tool_call>\\\\s*", "repeats": true,
          "content": "json", "transform": {"type": "function", "function": "{content}"}
        },
        "content": {"close": "<|im_end|>"}
      }
    }

A template finds fields of a message between markers, which are literals or regular expressions. A `Format` says more: how a
call is written, which spellings are read besides, and what can be enforced.
"""
