"""A checkpoint folder: looked at before it is loaded, so that what is wrong with it is said plainly; then loaded.

Only safetensors are read, which are data. Nothing is unpickled, and code that a checkpoint brings is never run.
"""

import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import llguidance

from callsmith.core.errors import Unavailable
from callsmith.core.ports import WeightsInfo
from callsmith.core.values import Sampling
from callsmith.engines.decoding.sequence import with_standards
from callsmith.engines.decoding.vocabulary import SafeCuts, Vocabulary
from callsmith.engines.port import EngineInfo
from callsmith.engines.transformers.attention import NAME
from callsmith.engines.transformers.libraries import LanguageModel, tokenizers, torch, transformers

_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")
_LAYERS: Final = frozenset({"full_attention", "sliding_attention"})  # whose keys and values can be cached cell by cell
_INDEX: Final = "model.safetensors.index.json"


class TokenizerVocabulary(Vocabulary):
    """The tokens of a fast tokenizer. `size` is how many the model has logits for, `ends` those that its configuration names."""

    def __init__(self, tokenizer: Any, size: int, ends: Iterable[int]) -> None:
        self._backend: Any = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        self._json: dict[str, Any] = json.loads(self._backend.to_str())
        self.size = size
        added: list[dict[str, Any]] = [
            added_token for added_token in self._json["added_tokens"] if added_token["id"] < size and added_token["content"]
        ]
        self._added: Mapping[int, dict[str, Any]] = {item["id"]: item for item in added}
        self.special = {token: entry["content"] for token, entry in self._added.items() if _is_special(entry)}
        self.specials = {text: token for token, text in self.special.items()}
        self.bos = _number(tokenizer.bos_token_id)
        self.ends = frozenset(token for token in (*ends, _number(tokenizer.eos_token_id)) if 0 <= token < size)
        if not self.ends:
            raise Unavailable("neither the tokenizer nor the configuration names a token that ends an answer")
        self.eos = min(self.ends) if tokenizer.eos_token_id not in self.ends else tokenizer.eos_token_id
        self.adds_bos = self.bos >= 0 and self._backend.encode("a").ids[:1] == [self.bos]
        self._guidance = self._make_guidance()
        self.says = [self._guidance.decode_bytes([token]) for token in range(size)]

    def guidance_tokenizer(self, slices: list[str]) -> llguidance.LLTokenizer:
        """The same tokens for llguidance, which tokenizes by itself."""
        return self._guidance.with_slices(slices)

    def _make_guidance(self) -> llguidance.LLTokenizer:
        """To llguidance exactly those tokens are special that are so to us."""
        marked = [added_token | {"special": added_token["id"] in self.special} for added_token in self._json["added_tokens"]]
        ends = sorted(self.ends & self.special.keys() or self.ends, key=lambda token: (token != self.eos, token))
        text = json.dumps(self._json | {"added_tokens": marked, "decoder": _find_byte_level(self._json["decoder"])})
        try:
            return llguidance.LLTokenizer(text, n_vocab=self.size, eos_token=ends, slices=[])
        except ValueError as error:
            raise Unavailable(f"the tokenizer is of a kind that cannot be used with grammars: {error}") from error

    def _tokens(self, data: bytes, *, specials: bool = True) -> "array[int]":
        tokenizer = self._backend if specials else self._letters
        return array("i", tokenizer.encode(data.decode(), add_special_tokens=False).ids)

    @cached_property
    def _letters(self) -> Any:
        """The tokenizer without special tokens: their text is made of ordinary ones."""
        ordinary = [added_token for added_token in self._json["added_tokens"] if added_token["id"] not in self.special]
        return tokenizers.Tokenizer.from_str(json.dumps(self._json | {"added_tokens": ordinary}))

    @cached_property
    def _safe_cuts(self) -> SafeCuts:
        # A normalizer may change the text before these are looked for.
        eaters = [item for item in self._added.values() if item["lstrip"] or item["single_word"] or item["normalized"]]
        return SafeCuts(
            (item["content"].encode() for item in self._added.values()), [eater["content"].encode() for eater in eaters]
        )


def _is_special(added: Mapping[str, Any]) -> bool:
    """Whether the token differs from its letters. An added token that is just a word or spaces does not."""
    text: str = added["content"]
    return bool(added["special"]) or (text[:1] == "<" and text[-1:] == ">")


def _find_byte_level(decoder: dict[str, Any] | None) -> dict[str, Any] | None:
    """The decoder of bytes in a sequence of decoders, if it has one; else the decoder. To llguidance a ByteFallback would count,
    also where it has nothing to do, as transformers makes one of a GGUF file: `Ġ` would be a letter."""
    steps: list[dict[str, Any]] = decoder.get("decoders", []) if decoder else []
    return next((step for step in steps if step["type"] == "ByteLevel"), decoder)


def _number(token: int | None) -> int:
    return -1 if token is None else token


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint. The context in its `info` is how many tokens it was trained for."""

    model: LanguageModel
    vocabulary: TokenizerVocabulary
    info: EngineInfo


def check_folder(folder: Path) -> None:
    """Raise what is certainly wrong with the folder."""
    if not folder.is_dir():
        expected = "give a folder with config.json and model.safetensors"
        hint = "a GGUF file is opened by llama:" if folder.suffix == ".gguf" else expected
        raise Unavailable(f"there is no checkpoint folder at {folder}", hint=hint)
    config = _read_json(folder, "config.json", "its configuration")
    if "auto_map" in config and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Unavailable(f"{folder} needs code of its own ({config['auto_map']}), and code from a checkpoint is never run")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise Unavailable(f"{folder} has no tokenizer", hint=f"one of these files is expected: {', '.join(_TOKENIZERS)}")
    if (folder / _INDEX).is_file():
        shards = set(_read_json(folder, _INDEX, "the list of its files").get("weight_map", {}).values())
        if missing := sorted(name for name in shards if not (folder / name).is_file()):
            raise Unavailable(f"{folder} is incomplete: {', '.join(missing)} missing", hint="fetch the checkpoint again")
    elif not (folder / "model.safetensors").is_file():
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        hint = "its weights are pickled; convert them to safetensors" if pickled else "model.safetensors is expected"
        raise Unavailable(f"{folder} has no weights in safetensors", hint=hint)


def load(folder: Path, device: str, dtype: str | None) -> Checkpoint:
    """Load the checkpoint. `dtype` is PyTorch's name of a type of numbers; None: the checkpoint's own on a GPU, else float32."""
    check_folder(folder)
    kind = (dtype or "auto") if device != "cpu" else (dtype or "float32")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        config = transformers.AutoConfig.from_pretrained(folder, **local)
        _check_layers(config)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=kind, attn_implementation=NAME, use_safetensors=True, **local
        )
    except Unavailable:
        raise
    except Exception as error:
        of_transformers = (OSError, ValueError, KeyError, ImportError, RuntimeError, TypeError, AttributeError)
        is_damaged = not isinstance(error, of_transformers)  # safetensors' error has no base class of its own
        hint = "the file may be damaged: fetch it again" if is_damaged else "is it complete, and known to transformers?"
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unavailable(f"{folder} cannot be loaded: {why}", hint=hint) from error
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return describe(_name(folder.resolve()), model.to(device), tokenizer, size)


def _name(folder: Path) -> str:
    """What the checkpoint in a folder is called; one in the cache of a hub is in `models--ORG--NAME/snapshots/COMMIT`."""
    repository = folder.parent.parent.name
    is_cached = folder.parent.name == "snapshots" and repository.startswith("models--")
    return repository.rpartition("--")[2] if is_cached else folder.name


def describe(name: str, model: LanguageModel, tokenizer: Any, size: int = 0) -> Checkpoint:
    """The checkpoint of a model and a tokenizer that are in memory."""
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise Unavailable(f"the tokenizer of {name} has no fast form", hint="a tokenizer.json is expected")
    config = model.config.get_text_config()
    generation = model.generation_config
    vocabulary = TokenizerVocabulary(tokenizer, config.vocab_size, (*_ends(config), *_ends(generation)))
    parameters: int = sum(parameter.numel() for parameter in model.parameters())
    weights = WeightsInfo(
        format="safetensors",
        architecture=config.model_type,
        parameters=parameters,
        size_label=f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M",
        quantization=str(model.dtype).removeprefix("torch."),
        size=size,
    )
    info = EngineInfo(
        name,
        f"{weights.architecture} {weights.size_label} {weights.quantization}",
        context=getattr(config, "max_position_embeddings", None) or 8192,
        template=_template(tokenizer),
        response_template=getattr(tokenizer, "response_template", None),
        sampling=_sampling(generation),
        weights=weights,
    )
    return Checkpoint(model.eval(), vocabulary, info)


def _check_layers(config: Any) -> None:
    text = config.get_text_config()
    layers: set[str] = set(getattr(text, "layer_types", None) or ())
    if others := sorted(layers - _LAYERS):
        raise Unavailable(f"{text.model_type} has layers of a kind this engine has no cache for: {', '.join(others)}")
    if getattr(text, "attention_chunk_size", None):
        raise Unavailable(f"{text.model_type} attends in chunks, which this engine cannot do")


def _read_json(folder: Path, name: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except OSError:
        raise Unavailable(f"{folder} has no {name}, {what}", hint="give the folder of a Hugging Face checkpoint") from None
    except ValueError as error:
        raise Unavailable(f"{folder / name} is no JSON: {error}", hint="fetch the checkpoint again") from None
    if not isinstance(document, dict):
        raise Unavailable(f"{folder / name} is no JSON object", hint="fetch the checkpoint again")
    return document  # pyright: ignore[reportUnknownVariableType]


def _ends(config: Any) -> list[int]:
    ends = getattr(config, "eos_token_id", None)
    return [] if ends is None else [ends] if isinstance(ends, int) else [*ends]


def _template(tokenizer: Any) -> str | None:
    """The chat template; of several the one for tools."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        templates: dict[str, str] = template  # pyright: ignore[reportUnknownVariableType]
        return templates.get("tool_use") or templates.get("default")
    return template


def _sampling(generation: Any) -> Sampling:
    """The sampling settings that the checkpoint recommends, with defaults for the rest."""
    known = (getattr(generation, name, None) for name in ("temperature", "top_p", "top_k", "min_p"))
    return with_standards(*(float(value) if isinstance(value, int | float) else None for value in known))


def best_device() -> str:
    """The GPU, if PyTorch sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
