"""LangChain: our tools and models in its agents, its tools in our runs. `pip install 'callsmith[langchain]'`.

from callsmith.adapters.langchain import ChatCallsmith, from_langchain, to_langchain

agent = create_agent(ChatCallsmith(model="qwen2.5-coder-1.5b"), to_langchain(Functions(get_weather)))
"""
# pyright: basic, reportMissingImports=false

from callsmith.adapters.langchain.approvals import read_decisions, read_interrupt_on, write_decision, write_request
from callsmith.core.errors import MissingExtra

try:
    from callsmith.adapters.langchain.model import ChatCallsmith
    from callsmith.adapters.langchain.tools import from_langchain, to_langchain
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "langchain_core":
        raise
    raise MissingExtra("langchain", "LangChain") from missing

__all__ = [
    "ChatCallsmith",
    "from_langchain",
    "read_decisions",
    "read_interrupt_on",
    "to_langchain",
    "write_decision",
    "write_request",
]
