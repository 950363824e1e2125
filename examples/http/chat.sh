#!/bin/sh
# A tool call with curl: sh examples/http/chat.sh
curl --silent --show-error "${OPENAI_BASE_URL:-http://127.0.0.1:8000/v1}/chat/completions" \
  --header 'content-type: application/json' --data '{
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "get_weather",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
  }'
