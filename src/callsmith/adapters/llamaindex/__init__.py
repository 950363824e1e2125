"""LlamaIndex: our tools and models in its agents, its tools in our runs. `pip install 'callsmith[llamaindex]'`.

from callsmith.adapters.llamaindex import CallsmithLLM, from_llamaindex, to_llamaindex

agent = FunctionAgent(tools=to_llamaindex(Functions(get_weather)), llm=CallsmithLLM(model="qwen2.5-coder-1.5b"))
"""
# pyright: basic, reportMissingImports=false

from callsmith.core.errors import MissingExtra

try:
    from callsmith.adapters.llamaindex.model import CallsmithLLM
    from callsmith.adapters.llamaindex.tools import ToolsetSpec, from_llamaindex, to_llamaindex
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "llama_index":
        raise
    raise MissingExtra("llamaindex", "LlamaIndex") from missing

__all__ = ["CallsmithLLM", "ToolsetSpec", "from_llamaindex", "to_llamaindex"]
