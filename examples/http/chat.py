"""A tool call with nothing but Python's standard library: `python examples/http/chat.py`."""

import json
import os
import urllib.request

BODY = {
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tool_choice": "required",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
}
url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1") + "/chat/completions"
request = urllib.request.Request(url, json.dumps(BODY).encode(), {"content-type": "application/json"})
with urllib.request.urlopen(request, timeout=300) as response:
    message = json.load(response)["choices"][0]["message"]
for call in message["tool_calls"]:
    print(call["function"]["name"], json.loads(call["function"]["arguments"]))
