"""A stream whose tools run on the server: the request brings none, so that those of its MCP servers are used.

callsmith serve --mcp-config examples/mcp.json
python examples/streaming_mcp.py "Which files are there?"
"""

import os
import sys

from openai import OpenAI


def main(question: str = "Which files are there?") -> None:
    client = OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), api_key="any")
    stream = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": question}],
        stream=True,
        extra_body={"tool_events": True},  # ours: what the tools do is in the chunks, too
    )
    for chunk in stream:
        event = (chunk.model_extra or {}).get("callsmith") or {}
        if event.get("event") == "tool_started":
            print(f"[{event['name']} {event['arguments']}]")
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        for waiting in event.get("approvals", ()):
            print(f"\nwaits for approval: {waiting['name']} {waiting['arguments']}; decide at /v1/approvals/{waiting['id']}")
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
