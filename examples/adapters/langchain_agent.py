"""A LangChain agent on a model in this process, with tools of ours; a person is asked before a mail is sent.

pip install 'callsmith[langchain,llama]' langchain
python examples/adapters/langchain_agent.py [MODEL]
"""

import sys

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from callsmith import Confirmed, Functions, tool
from callsmith.adapters.langchain import ChatCallsmith, to_langchain


@tool
def find_address(person: str) -> str:
    """The mail address of a person."""
    return f"{person.lower()}@example.org"


@tool(side_effects=True)
def send_mail(address: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {address}"


def main(model: str = "qwen2.5-coder-1.5b") -> None:
    chat = ChatCallsmith(model=model, temperature=0)
    tools = to_langchain(Confirmed(Functions(find_address, send_mail)))
    agent = create_agent(chat, tools, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    state = agent.invoke({"messages": [("user", "Find the address of Ada, and send her this mail: the forge is hot.")]}, thread)
    while questions := state.get("__interrupt__"):
        (action,) = questions[0].value["action_requests"]
        agreed = input(f"{action['name']} {action['args']}: may it run? [y/n] ") == "y"
        decision = {"type": "approve"} if agreed else {"type": "reject", "message": "the user said no"}
        state = agent.invoke(Command(resume={"decisions": [decision]}), thread)
    print(state["messages"][-1].text)


if __name__ == "__main__":
    main(*sys.argv[1:])
