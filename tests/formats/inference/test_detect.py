"""Which format each real chat template speaks."""

import pytest

from callsmith.formats import format_named, formats
from callsmith.formats.inference.detect import CALLS, detect, shows_reasoning
from callsmith.formats.prompt.template import Template
from tests.formats.templates import names, needs_corpus, template

SPOKEN = {
    "apertus": ["Apertus-8B-Instruct"],
    "apriel": ["Apriel-1.6-15b-Thinker-fixed", "unsloth-Apriel-1.5"],
    "cohere-command-r": ["CohereForAI-c4ai-command-r-plus-tool_use"],
    "cohere-command3": ["Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"],
    "deepseek-v3": [
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "llama-cpp-deepseek-r1",
    ],
    "deepseek-v31": ["deepseek-ai-DeepSeek-V3.1"],
    "deepseek-v32": ["deepseek-ai-DeepSeek-V3.2"],
    "deepseek-v4": ["deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731"],
    "functionary-v31": ["meetkai-functionary-medium-v3.1"],
    "functionary-v32": ["meetkai-functionary-medium-v3.2"],
    "gemma4": ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
    "gigachat3": ["GigaChat3-10B-A1.8B"],
    "gigachat31": ["GigaChat3.1-10B-A1.8B"],
    "glm45": ["GLM-4.6"],
    "glm47": ["GLM-4.7-Flash"],
    "harmony": ["openai-gpt-oss-120b"],
    "hermes": [
        "Bielik-11B-v3.0-Instruct",
        "MiMo-VL",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Reka-Edge",
        "ibm-granite-granite-4.0",
        "ibm-granite-granite-4.1",
    ],
    "hy-v3": ["tencent-Hy3"],
    "kimi-k2": ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"],
    "kimi-k3": ["Kimi-K3"],
    "lfm2": ["LFM2.5-8B-A1B"],
    "llama3-json": ["meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"],
    "minicpm5": ["openbmb-MiniCPM5-1B"],
    "minimax-m1": ["MiniMax-M1"],
    "minimax-m2": ["MiniMax-M2"],
    "minimax-m3": ["MiniMax-M3"],
    "mistral": ["mistralai-Mistral-Nemo-Instruct-2407"],
    "mistral-args": [
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "unsloth-mistral-Devstral-Small-2507",
    ],
    "muse-glimmer": ["muse-glimmer"],
    "nemotron-v2": ["NVIDIA-Nemotron-Nano-v2"],
    "phi4-mini": ["fireworks-ai-llama-3-firefunction-v2"],
    "poolside-v1": ["poolside-Laguna-S-2.1", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2"],
    "qwen3-coder": ["NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash"],
    "seed-oss": ["ByteDance-Seed-OSS"],
    "solar-open": ["upstage-Solar-Open-100B"],
}
KNOW_NO_TOOLS = ["google-gemma-2-2b-it", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"]
SHOW_NO_CALLS = ["HuggingFaceTB-SmolLM3-3B", "LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct"]


@pytest.mark.req("R141")
@pytest.mark.req("R199")
@pytest.mark.req("R230")
@pytest.mark.req("R238")
@needs_corpus
@pytest.mark.parametrize(("name", "format"), [(name, format) for format, spoken in SPOKEN.items() for name in spoken])
@pytest.mark.sampled
def test_the_format_is_found_by_what_the_template_writes(name: str, format: str) -> None:
    evidence = detect(template(name), formats().values())
    assert evidence is not None
    assert evidence.format.name == format
    assert (evidence.found, evidence.repairs) == (len(CALLS), 0)


@needs_corpus
@pytest.mark.parametrize("name", KNOW_NO_TOOLS + SHOW_NO_CALLS)
def test_a_template_that_shows_no_calls_speaks_no_format(name: str) -> None:
    assert detect(template(name), formats().values()) is None


@needs_corpus
def test_the_table_is_complete() -> None:
    assert {name for spoken in SPOKEN.values() for name in spoken} | {*KNOW_NO_TOOLS, *SHOW_NO_CALLS} == names()


def test_of_formats_that_read_the_same_the_one_wins_that_writes_it_so() -> None:
    item = "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}"
    calls = "{% for call in m.tool_calls or [] %}" + item + "{% endfor %}"
    source = "{{ tools | tojson }}{% for m in messages %}{{ m.content or '' }}" + calls + "{% endfor %}"
    evidence = detect(Template(source), formats().values())
    assert evidence is not None
    assert evidence.format.name == "mistral-args"


def test_a_template_with_the_opener_of_reasoning_shows_it() -> None:
    thinking, plain = format_named("deepseek-v31"), format_named("jamba")
    assert shows_reasoning(thinking, "{{ '<think>' }}") and not shows_reasoning(thinking, "{{ messages }}")
    assert not shows_reasoning(plain, "<think>")
