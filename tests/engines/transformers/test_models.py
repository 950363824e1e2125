"""Random models of many architectures say through the engine what they say through transformers' own generation."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

import torch
import transformers

from callsmith.core.errors import Unavailable
from callsmith.core.values import Sampling
from callsmith.engines.transformers.attention import NAME
from callsmith.engines.transformers.checkpoint import Checkpoint, describe
from callsmith.engines.transformers.context import TorchContext
from callsmith.engines.transformers.engine import TransformersEngine
from callsmith.formats.prompt.prompt import Prompt
from tests.engines.contract import say

pytestmark = [pytest.mark.torch, pytest.mark.weights]

SMALL = {
    "vocab_size": 49152, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
}  # fmt: skip
HEADS = {"head_dim": 16}
WINDOW = {"sliding_window": 8}  # shorter than the prompts
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}  # fmt: skip
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}
KINDS: dict[str, dict[str, Any]] = {
    "cohere2": WINDOW,
    "deepseek_v3": LATENT | ROUTED | {"first_k_dense_replace": 2},
    "ernie4_5": HEADS,
    "exaone4": WINDOW | {"sliding_window_pattern": 2},
    "gemma": HEADS,
    "gemma2": HEADS | WINDOW | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "gemma3_text": HEADS | WINDOW,
    "gemma4_text": HEADS | WINDOW | {"vocab_size_per_layer_input": 49152, "hidden_size_per_layer_input": 8},
    "glm4": HEADS,
    "glm4_moe": HEADS | ROUTED | {"first_k_dense_replace": 2},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4},
    "gpt_neox": {},
    "gpt_oss": HEADS | WINDOW | EXPERTS,
    "granite": {},
    "granitemoe": EXPERTS,
    "hunyuan_v1_dense": HEADS,
    "llama": {},
    "ministral3": HEADS | WINDOW,
    "mistral": WINDOW,
    "minimax_m2": HEADS | EXPERTS,
    "mixtral": EXPERTS,
    "nemotron": {},
    "olmo2": {},
    "olmo3": WINDOW,
    "phi": {},
    "phi3": {},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 2} | WINDOW,
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3": HEADS,
    "qwen3_moe": HEADS | EXPERTS,
    "seed_oss": HEADS,
    "smollm3": {"no_rope_layer_interval": 2},
    "stablelm": {},
    "starcoder2": WINDOW,
}


@pytest.fixture(scope="module")
def checkpoint(tokenizer_folder: Path) -> Checkpoint:
    """A checkpoint, for all that the models below have in common."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_folder / "tokenizer.json"), bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    return describe("random", random_model("llama", NAME), tokenizer)


def random_model(kind: str, attention: str) -> Any:
    config = transformers.AutoConfig.for_model(kind, **SMALL | KINDS.get(kind, {}))
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_tokens_as_by_transformers_itself(kind: str, checkpoint: Checkpoint) -> None:
    """Windows shorter than the text, capped scores, sinks and experts included; three prompts of different lengths at once."""
    theirs = random_model(kind, "eager")
    ours = random_model(kind, NAME)
    ours.load_state_dict(theirs.state_dict())
    prompts = [[*range(1000, 1000 + size)] for size in (5, 23, 40)]
    wanted = [
        theirs.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :].tolist()
        for prompt in prompts
    ]
    context = TorchContext(ours, width=SMALL["vocab_size"], slots=4, length=128)
    engine = TransformersEngine(replace(checkpoint, model=ours, info=replace(checkpoint.info, name=kind)), context)

    async def answers() -> list[str]:
        sampling = Sampling(temperature=0.0, max_tokens=12)
        answering = [say(engine, Prompt("", tokens=tuple(prompt)), sampling) for prompt in prompts]
        try:
            return [text for text, _ in await asyncio.gather(*answering)]
        finally:
            await engine.close()

    says = engine.vocabulary.says
    assert asyncio.run(answers()) == [
        b"".join(says[token] for token in tokens if token != SMALL["eos_token_id"]).decode(errors="replace") for tokens in wanted
    ]


@pytest.mark.parametrize("kind", ["bloom", "gpt_neox_japanese", "bart"])
def test_a_model_that_attends_in_another_way_is_refused(kind: str) -> None:
    with pytest.raises(Unavailable, match="cannot be batched"):
        TorchContext(random_model(kind, NAME), width=SMALL["vocab_size"], slots=1, length=64)
