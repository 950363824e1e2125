"""A GGUF file as a Hugging Face checkpoint folder, and as a GGUF file of unquantised weights: the same numbers in both.

    python -m tests.engines.transformers.conversion FILE.gguf FOLDER     the folder; with --tokenizer the tokenizer alone

Takes files of the Llama architecture with a byte-level BPE tokenizer; `tokenizer_json` any with such a tokenizer.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize
from safetensors.numpy import save_file

NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
# How each kind of tokenizer splits a text before it merges, by its name in `tokenizer.ggml.pre`.
_QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, {**_BYTES, "use_regex": True}],
    "qwen2": [
        {"type": "Split", "pattern": {"Regex": _QWEN}, "behavior": "Isolated", "invert": False},
        {**_BYTES, "use_regex": False},
    ],
}


def tokenizer_json(reader: GGUFReader) -> dict[str, Any]:
    """The tokenizer of the file, as a tokenizer.json."""
    tokens: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = reader.fields["tokenizer.ggml.token_type"].contents()
    merges: list[str] = reader.fields["tokenizer.ggml.merges"].contents()
    added = [
        {"id": number, "content": text, "special": kind == 3, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (3, 4)
    ]
    split = SPLITS[reader.fields["tokenizer.ggml.pre"].contents()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {text: number for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != 5},
            "merges": [merge.split(" ") for merge in merges],
        },
    }  # fmt: skip


def write_tokenizer(reader: GGUFReader, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(tokenizer_json(reader), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(document, encoding="utf-8")


def write_folder(file: Path, folder: Path) -> Path:
    """The weights as float32 in safetensors, with configuration, tokenizer and chat template."""
    reader = GGUFReader(file)
    value = lambda key: reader.fields[key].contents()  # noqa: E731
    tokens: list[str] = value("tokenizer.ggml.tokens")
    heads, kv_heads, layers = (
        value(f"llama.{key}") for key in ("attention.head_count", "attention.head_count_kv", "block_count")
    )
    write_tokenizer(reader, folder)
    save_file(dict(_named(reader, heads, kv_heads)), folder / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "dtype": "float32",
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "vocab_size": len(tokens),
        "hidden_size": value("llama.embedding_length"), "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": value("llama.context_length"), "rms_norm_eps": value("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": value("llama.rope.freq_base"), "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
    }  # fmt: skip
    text = lambda key: tokens[value(f"tokenizer.ggml.{key}")]  # noqa: E731
    settings = {
        "bos_token": text("bos_token_id"),
        "eos_token": text("eos_token_id"),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(value("tokenizer.chat_template"))
    return folder


def write_unquantised(file: Path, target: Path) -> Path:
    """The same file with all weights as float32."""
    reader = GGUFReader(file)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kinds = field.types
            value = 0 if key == "general.file_type" else field.contents()
            writer.add_key_value(key, value, kinds[0], kinds[1] if len(kinds) > 1 else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _named(reader: GGUFReader, heads: int, kv_heads: int) -> Any:
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind, _, rest = tensor.name.partition(".")
        if kind == "blk":
            number, part, _ = rest.split(".")
            if part in ("attn_q", "attn_k"):
                values = _unpermuted(values, heads if part == "attn_q" else kv_heads)
            yield f"model.layers.{number}.{NAMES[part]}.weight", np.ascontiguousarray(values)
        else:
            yield {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[kind], values


def _unpermuted(values: Any, heads: int) -> Any:
    """Undo the order in which llama.cpp has the rows of a rotary projection: pairs side by side instead of halves."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    if "--tokenizer" in sys.argv:
        write_tokenizer(GGUFReader(source), target)
    else:
        write_folder(source, target)
