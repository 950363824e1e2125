"""A tiny model for other servers to run: random weights behind the tokenizer of a small GGUF model.

    python -m tests.adapters.tiny_model MODEL.gguf FOLDER

The markers of calls and of reasoning are special tokens of it, as in models that were taught to call tools. It says nothing
sensible: what comes out valid is valid because of the grammar.
"""

import json
import sys
from pathlib import Path

TEMPLATE = """\
{%- for message in messages %}
{%- if loop.first and tools %}{{- '<|im_start|>system\\nTools:' }}{%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking %}{{- '<think>\\n' }}{%- endif %}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""  # noqa: E501
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


def write_tokenizer(gguf: Path, folder: Path, template: str = TEMPLATE) -> int:
    """Write the tokenizer of a GGUF file, with our markers added, as Hugging Face has it; returns how many tokens there are."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(gguf).fields
    tokens = [str(bytes(fields["tokenizer.ggml.tokens"].parts[at]), "utf-8") for at in fields["tokenizer.ggml.tokens"].data]
    merges = [str(bytes(fields["tokenizer.ggml.merges"].parts[at]), "utf-8") for at in fields["tokenizer.ggml.merges"].data]
    kinds = [int(fields["tokenizer.ggml.token_type"].parts[at][0]) for at in fields["tokenizer.ggml.token_type"].data]
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in (*special, *MARKERS)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **ends}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return tokenizer.get_vocab_size()


def write_model(gguf: Path, folder: Path) -> None:
    """Write a random Qwen2 of about ten million parameters with that tokenizer."""
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    size = write_tokenizer(gguf, folder)
    end = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<|im_end|>")
    config = Qwen2Config(
        vocab_size=-(-size // 64) * 64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(folder)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), Path(sys.argv[2]))
