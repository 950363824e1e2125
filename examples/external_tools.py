"""Tools that the client runs itself: the request brings them, and gets the calls back.

callsmith serve
python examples/external_tools.py
"""

import json
import os

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        },
    },
}


def get_weather(city: str, unit: str = "celsius") -> str:
    return f"sunny in {city}, {'22 °C' if unit == 'celsius' else '72 °F'}"


def main() -> None:
    client = OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), api_key="any")
    messages: list = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    choice = "required"  # the first answer has to be a call
    while True:
        answer = client.chat.completions.create(model="default", messages=messages, tools=[TOOL], tool_choice=choice)
        message = answer.choices[0].message
        if not message.tool_calls:
            print(message.content)
            return
        messages.append(message)
        for call in message.tool_calls:
            print(f"[{call.function.name} {call.function.arguments}]")
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        choice = "auto"


if __name__ == "__main__":
    main()
