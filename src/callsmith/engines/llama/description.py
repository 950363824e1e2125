"""What is known of a GGUF model before it is loaded: the header of its file says it."""

from collections.abc import Callable
from pathlib import Path

from callsmith.core.errors import Unavailable
from callsmith.core.ports import WeightsInfo
from callsmith.core.values import Sampling
from callsmith.engines.decoding.sequence import DEFAULTS
from callsmith.engines.llama.gguf import QUANTIZATIONS, SLICE
from callsmith.engines.llama.gpu.header import read_header
from callsmith.engines.llama.gpu.layers import memory_of
from callsmith.engines.port import EngineInfo, with_defaults


def describe(rest: str, *, context: int = 8192) -> EngineInfo:
    """What the engine for the GGUF file at that path would say of itself, as far as the file tells."""
    path = Path(rest).expanduser()
    try:
        header = read_header(path)
    except ValueError as error:
        hint = "It is a broken download, or a file of another kind."
        raise Unavailable(f"{path} cannot be read: {error}", hint=hint) from error
    size = min(context, header.number("context_length") or context)
    return EngineInfo(
        name=header.text("general.name") or path.stem,
        context=size,
        template=header.text("tokenizer.chat_template") or None,
        weights=WeightsInfo(
            format="gguf",
            architecture=header.text("general.architecture"),
            parameters=header.parameters,
            size_label=header.text("general.size_label"),
            quantization=QUANTIZATIONS.get(header.text("general.file_type"), ""),
            size=path.stat().st_size,
        ),
        memory=memory_of(header, context=size, slice=SLICE),
        sampling=recommended_sampling(header.text),
    )


def recommended_sampling(metadata: Callable[[str], str | None]) -> Sampling:
    """The sampling settings recommended in a file's metadata, with defaults for the rest."""

    def number(key: str) -> float | None:
        said = metadata(f"general.sampling.{key}")
        return float(said) if said else None

    top_k = number("top_k")
    return with_defaults(
        Sampling(
            temperature=number("temp"),
            top_p=number("top_p"),
            top_k=None if top_k is None else int(top_k),
            min_p=number("min_p"),
        ),
        DEFAULTS,
    )
