"""CrewAI: our tools and models in its crews, its tools in our runs. `pip install 'callsmith[crewai]'`.

from callsmith.adapters.crewai import CallsmithLLM, from_crewai, to_crewai

agent = Agent(role="…", goal="…", backstory="…", llm=CallsmithLLM("qwen2.5-coder-1.5b"), tools=to_crewai(Functions(get_weather)))
"""
# pyright: basic, reportMissingImports=false

from callsmith.core.errors import MissingExtra

try:
    from callsmith.adapters.crewai.model import CallsmithLLM
    from callsmith.adapters.crewai.tools import from_crewai, to_crewai
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "crewai":
        raise
    raise MissingExtra("crewai", "CrewAI") from missing

__all__ = ["CallsmithLLM", "from_crewai", "to_crewai"]
