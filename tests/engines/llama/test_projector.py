"""Images, by projectors of random weights: the model gets the rows that llama.cpp's own helpers give it, at the same places."""

import asyncio
import ctypes as C
import math
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import CallsmithError, PromptTooLong, Unavailable, UsageError
from callsmith.core.values import Image, Sampling
from callsmith.engines.decoding.pictures import ShownImage
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.engine import open as open_engine
from callsmith.engines.llama.libllama import load
from callsmith.engines.llama.projector import Projector, _InputText, _read_data, find_projector
from callsmith.engines.lru import LRU
from callsmith.engines.port import Finished
from callsmith.formats.prompt.prompt import PICTURE, Prompt
from tests.small import THREADS, shallow_file
from tests.tiny_projector import Kind, write_png, write_projector, write_with_sections

WIDTH = 576  # of SmolLM2
RED, BLUE = ((200, 30, 30), (30, 30, 200))
KINDS: tuple[Kind, ...] = ("mlp", "gemma3", "qwen2vl_merger")
LIKELIEST = 40


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEngine]:
    model = write_model(tmp_path_factory.mktemp(request.param), request.param)
    engine = open_engine(str(model), context=2048, threads=THREADS)
    yield engine
    asyncio.run(engine.close())


def write_model(folder: Path, kind: Kind = "mlp") -> Path:
    """A model with a projector beside it."""
    model = folder / "model-Q4_1.gguf"
    if kind == "qwen2vl_merger":
        write_with_sections(shallow_file(), model)
    else:
        shutil.copy(shallow_file(), model)
    write_projector(folder / "mmproj-model-f16.gguf", WIDTH, kind)
    return model


def image(color: tuple[int, int, int], width: int = 84, height: int = 56) -> Image:
    return Image.from_bytes(write_png(width, height, color))


def prompt(*parts: str | Image, salt: str = "") -> Prompt:
    text = "".join(part if isinstance(part, str) else PICTURE for part in parts)
    images = tuple(part for part in parts if isinstance(part, Image))
    return Prompt(text, images=images, origin=Origin(cache_salt=salt))


async def first_token(engine: LlamaEngine, asked: Prompt) -> tuple[dict[bytes, float], int, int]:
    """The log probabilities of the first token, and how many tokens the prompt has, of which so many were cached."""
    settings = Sampling(temperature=0.0, max_tokens=1, logprobs=LIKELIEST)
    pieces = [piece async for piece in engine.generate(asked, settings)]
    token = next(token for piece in pieces if not isinstance(piece, Finished) for token in piece.tokens)
    usage = pieces[-1].usage
    assert usage
    return {item.data: item.logprob for item in token.logprob.top}, usage.prompt, usage.cached


def differ(one: dict[bytes, float], other: dict[bytes, float]) -> float:
    """How far apart the log probabilities are, on average over what may be drawn. What is unlikely is rounded most, differently
    in batches of another shape on some processors, and counts for little."""
    both = one.keys() & other.keys()
    assert len(both) > LIKELIEST // 4
    return sum(math.exp(one[token]) * abs(one[token] - other[token]) for token in both)


SAME, OTHER = 0.02, 0.04  # at most, at least
BESIDE_OTHERS = 0.06  # at most, in a batch with other requests: it is rounded by its shape, to 0.036 on some processors


def by_the_library(engine: LlamaEngine, text: str, pictures: list[Image]) -> tuple[np.ndarray[Any, Any], int]:
    """The logits after this text with its images as llama.cpp's own helpers decode it, and the positions it takes."""
    c = load().c
    weights, projector = engine._weights, engine._projector
    assert projector
    settings = c.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = 2048, 512, 512, 1
    context = c.llama_init_from_model(weights.pointer, settings)
    bitmaps = [projector._load(_read_data(picture)) for picture in pictures]
    chunks = c.mtmd_input_chunks_init()
    content = text.replace(PICTURE, c.mtmd_default_marker().decode()).encode()
    given = _InputText(content, len(content), weights.vocabulary.adds_bos, True)
    assert c.mtmd_tokenize(projector.pointer, chunks, C.byref(given), (C.c_void_p * len(bitmaps))(*bitmaps), len(bitmaps)) == 0
    evaluate = c.mtmd_helper_eval_chunks
    evaluate.argtypes = [C.c_void_p] * 3 + [C.c_int32] * 3 + [C.c_bool, C.POINTER(C.c_int32)]
    end = C.c_int32()
    assert evaluate(projector.pointer, context, chunks, 0, 0, 512, True, C.byref(end)) == 0
    logits = np.ctypeslib.as_array(c.llama_get_logits_ith(context, -1), (weights.vocabulary.size,)).copy()
    c.mtmd_input_chunks_free(chunks)
    for bitmap in bitmaps:
        c.mtmd_bitmap_free(bitmap)
    c.llama_free(context)
    return logits, end.value


async def test_the_answer_to_images_is_the_one_that_the_librarys_own_helpers_give(engine: LlamaEngine):
    parts = ("Look at this: ", image(RED), " and at that: ", image(BLUE, 56, 112), " What is it? It is a")
    asked = prompt(*parts, salt="reference")
    logits, positions = by_the_library(engine, asked.text, [*asked.images])
    expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    said, tokens, _ = await first_token(engine, asked)
    says = {text: float(expected[token]) for token, text in enumerate(engine.vocabulary.says)}
    assert differ(said, says) < SAME
    assert (tokens > positions) == (engine._projector is not None and engine._projector.shares_positions)
    other, *_ = await first_token(engine, prompt(*parts[:3], image(RED, 56, 112), parts[4], salt="another image"))
    assert differ(said, other) > OTHER, "the image makes a difference"


async def test_what_was_read_of_images_is_reused_and_of_another_image_it_is_not(engine: LlamaEngine):
    before, after = "Look at this picture of mine, please: ", " What is it? It is a"
    first, tokens, cached = await first_token(engine, prompt(before, image(RED), after, salt="reuse"))
    again, _, cached_again = await first_token(engine, prompt(before, image(RED), after, salt="reuse"))
    assert (cached, cached_again) == (0, tokens - 1)
    assert differ(first, again) < SAME
    other, _, cached_other = await first_token(engine, prompt(before, image(BLUE), after, salt="reuse"))
    assert 0 < cached_other < cached_again
    alone, *_ = await first_token(engine, prompt(before, image(BLUE), after, salt="alone"))
    assert differ(other, alone) < SAME
    assert differ(first, other) > OTHER


async def test_a_conversation_goes_on_behind_an_image(engine: LlamaEngine):
    begun = prompt("Look: ", image(RED), " It is a", salt="turns")
    await first_token(engine, begun)
    further = prompt("Look: ", image(RED), " It is a red thing. And this: ", image(BLUE), " It is a", salt="turns")
    said, tokens, cached = await first_token(engine, further)
    anew, *_ = await first_token(engine, prompt(*_parts(further), salt="anew"))
    assert 0 < cached < tokens
    assert differ(said, anew) < SAME


def _parts(asked: Prompt) -> list[str | Image]:
    texts = asked.text.split(PICTURE)
    parts: list[str | Image] = [texts[0]]
    for picture, text in zip(asked.images, texts[1:], strict=True):
        parts += [picture, text]
    return parts


async def test_requests_with_images_and_without_are_decoded_side_by_side(engine: LlamaEngine):
    shared = "A long beginning that all of them share, so that its cells are shared as well, whichever of them comes first: "
    asked = [
        prompt(shared, image(RED), " The first is a", salt="batch"),
        prompt(shared, "no image at all. The second is a", salt="batch"),
        prompt(shared, image(BLUE), image(RED), " The third is a", salt="batch"),
        prompt(shared, image(RED), " The fourth is a", salt="batch"),
    ]
    together = await asyncio.gather(*(first_token(engine, item) for item in asked))
    for item, (said, *_) in zip(asked, together, strict=True):
        alone, *_ = await first_token(engine, prompt(*_parts(item), salt=f"alone {item.text}"))
        assert differ(said, alone) < BESIDE_OTHERS
    for item, (said, *_) in zip((asked[0], asked[3]), (together[0], together[3]), strict=True):
        before, picture, after = _parts(item)
        variants = [(before, picture, after), (before, image(BLUE), after), (before, after)]
        alone = [(await first_token(engine, prompt(*parts, salt=f"{n} {item.text}")))[0] for n, parts in enumerate(variants)]
        assert min(range(3), key=lambda n: differ(said, alone[n])) == 0, "it is about its own image"


async def test_the_tokens_of_images_are_counted(engine: LlamaEngine):
    asked = prompt("Look: ", image(RED), image(BLUE), " It is a", salt="count")
    assert engine.info.count_images
    _, tokens, _ = await first_token(engine, asked)
    texts = sum([await engine.count(text) for text in ("Look: ", " It is a")])
    assert await engine.info.count_images(asked) + texts == tokens - engine.vocabulary.adds_bos


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEngine]:
    engine = open_engine(str(write_model(tmp_path_factory.mktemp("simple"))), context=256, threads=THREADS)
    yield engine
    asyncio.run(engine.close())


PNG = write_png(8, 8, RED)
LARGE = PNG[:16] + struct.pack(">II", 8000, 8000) + PNG[24:]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Image("https://example.com/a.png"), "fetch nothing: send it as data"),
        (Image.from_bytes(b"RIFF\0\0\0\0WEBPVP8 "), "send PNG, JPEG or GIF"),
        (Image.from_bytes(b"%PDF-1.7"), "send PNG, JPEG or GIF"),
        (Image.from_bytes(PNG[:40]), "its file is damaged"),
        (Image.from_bytes(b"\x89PNG nothing more"), "its file is damaged"),
        (Image("data:image/png;base64,iVBORw0KGgo*"), "no valid Base64"),
        (Image.from_bytes(LARGE), "8000 x 8000 pixels; at most 40 million"),
        (Image.from_bytes(PNG + bytes(17 << 20)), "more than 17 MB"),
    ],
)
async def test_what_cannot_be_read_is_an_error_of_the_request_and_the_next_one_is_answered(
    simple: LlamaEngine, bad: Image, why: str
):
    with pytest.raises(UsageError, match=why):
        await first_token(simple, prompt("Look: ", bad, " It is"))
    assert (await first_token(simple, prompt("It is", salt=why)))[1]


@pytest.mark.parametrize("salts", [("", ""), ("mine", "yours")])
def test_of_two_who_send_the_same_image_whoever_leaves_takes_it_from_nobody(
    simple: LlamaEngine, monkeypatch: pytest.MonkeyPatch, salts: tuple[str, str]
):
    projector = simple._projector
    assert projector
    monkeypatch.setattr(projector, "_kept", LRU[ShownImage](0))  # other images have pushed it out
    stays, leaves = (projector.show(image(RED), salt) for salt in salts)
    token = stays.pictures[0].tokens[0]
    del leaves
    assert projector.rows.of(token) is stays.pictures[0]


async def test_images_that_alone_are_too_long_are_refused_before_all_are_read(simple: LlamaEngine):
    many = [image((number, 0, 0), 14, 14) for number in range(100)]
    with pytest.raises(PromptTooLong) as refused:
        await first_token(simple, prompt("Look: ", *many, " It is", salt="many"))
    assert 256 < refused.value.tokens < 300


async def test_an_image_at_the_very_end_of_a_prompt_is_refused(simple: LlamaEngine):
    with pytest.raises(UsageError, match="ends with an image"):
        await first_token(simple, prompt("Look: ", image(RED)))


def test_a_projector_of_another_model_is_refused(tmp_path: Path):
    model = write_model(tmp_path)
    write_projector(tmp_path / "other.gguf", 64)
    with pytest.raises(Unavailable, match=r"no projector for .*mismatch"):
        open_engine(str(model), context=256, projector=str(tmp_path / "other.gguf"))
    with pytest.raises(Unavailable, match="there is no projector at"):
        open_engine(str(model), context=256, projector=str(tmp_path / "none.gguf"))


def test_a_projector_that_lies_beside_a_model_and_does_not_fit_keeps_nobody_from_text(tmp_path: Path):
    model = write_model(tmp_path)
    write_projector(tmp_path / "mmproj-model-f16.gguf", 64)
    engine = open_engine(str(model), context=256, threads=THREADS)
    assert engine.info.count_images is None
    assert "mismatch" in engine.info.no_images
    asyncio.run(engine.close())


def test_a_library_without_what_reads_images_is_named_with_the_one_that_has_it(simple: LlamaEngine):
    class Without:
        """A library such as those that `callsmith engines install` fetches."""

    weights = type("Weights", (), {"library": type("Library", (), {"c": Without()})()})()
    with pytest.raises(CallsmithError, match="CALLSMITH_LIBLLAMA=pinned"):
        Projector(weights, Path("mmproj.gguf"))  # pyright: ignore[reportArgumentType]


def test_of_several_projectors_the_one_in_half_precision_is_taken(tmp_path: Path):
    for name in ("mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-Q8_0.gguf", "model.gguf"):
        (tmp_path / name).touch()
    assert find_projector(tmp_path / "model.gguf") == tmp_path / "mmproj-F16.gguf"
    assert find_projector(tmp_path / "nowhere" / "model.gguf") is None
