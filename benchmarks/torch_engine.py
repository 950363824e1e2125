"""What grammars cost the `transformers` engine: tokens a second at batch 1, 8, 64 and 256, free beside constrained, in turn.

    CALLSMITH_TOKENIZER=tokenizer.json python -m benchmarks torch_engine

The model has random weights, made in memory: about 1.2 B parameters on a GPU, a tiny one on a CPU, where the figures say nothing.
The tokenizer is a real one: `python -m tests.engines.transformers.conversion FILE.gguf FOLDER --tokenizer` makes one of a GGUF
file.
Needs PyTorch, transformers and llguidance, and no network.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import llguidance
import numpy as np
import torch
import transformers

from benchmarks.measure import ROUNDS, compare
from benchmarks.table import goal, show
from callsmith.core.values import Sampling
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.vocabulary import Vocabulary
from callsmith.engines.port import Piece
from callsmith.engines.transformers.attention import NAME
from callsmith.engines.transformers.checkpoint import Checkpoint, describe
from callsmith.engines.transformers.context import TorchContext
from callsmith.engines.transformers.engine import TransformersEngine
from callsmith.engines.transformers.masks import FIRST_QUOTE, apply_masks
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Alt, Grammar, JsonValue, Lit, Many, Seq

BATCHES = (1, 8, 64, 256)
BEGIN, END = 24, 152  # tokens of an answer: only between these is measured, while all answers are being written
LEAST_SHARES = {64: 0.95, 256: 0.9}  # constrained, of the tokens a second that are written free
ROOM = 1024
SAMPLING = Sampling(temperature=1.0, top_k=40, top_p=0.95, max_tokens=ROOM - 200)
GPU = torch.cuda.is_available()


def tools_grammar(tools: int = 10) -> Grammar:
    """Calls of ten tools, one after another without end, so that no answer is complete before it was measured."""

    def call(number: int) -> dict[str, Any]:
        arguments = {
            "city": {"type": "string", "maxLength": 16},
            "days": {"type": "integer"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        }
        fields = {"name": {"const": f"tool_{number}"}, "arguments": _closed(arguments)}
        return _closed(fields)

    calls = Alt(tuple(JsonValue(call(number)) for number in range(tools)))
    return Grammar(Many(Seq((Lit("<tool_call>\n"), calls, Lit("\n</tool_call>\n"))), 500, None))


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def make_checkpoint() -> Checkpoint:
    """A model of random weights, with a real tokenizer."""
    file = os.environ.get("CALLSMITH_TOKENIZER", "")
    if not Path(file).is_file():
        raise SystemExit("CALLSMITH_TOKENIZER must name a tokenizer.json; see the head of benchmarks/torch_engine.py")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file, eos_token="<|im_end|>")
    hidden, inner, layers, heads, kv_heads = (2048, 8192, 16, 32, 8) if GPU else (64, 128, 2, 4, 2)
    config = transformers.LlamaConfig(
        vocab_size=-(-len(tokenizer) // 128) * 128, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda" if GPU else "cpu"):
        kind = torch.bfloat16 if GPU else torch.float32
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=NAME, dtype=kind)
    return describe("random", model, tokenizer)


def open_random(checkpoint: Checkpoint, live: int) -> TransformersEngine:
    """An engine on that model, for so many answers at once."""
    context = TorchContext(checkpoint.model, width=checkpoint.vocabulary.size, slots=live, length=ROOM)
    return TransformersEngine(checkpoint, context, queue=live)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a batch took while all of its answers were being written. Times are milliseconds a step."""

    tokens: int
    seconds: float
    steps: int
    forward: float
    masks: float
    exposed: float
    applying: float
    accepting: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def step(self) -> float:
        return 1000 * self.seconds / self.steps

    @property
    def share(self) -> float:
        """How much of a step, in per cent, the GPU waits for masks and applies them."""
        return 100 * (self.exposed + self.applying) / self.step

    @property
    def details(self) -> tuple[float, ...]:
        """Where a step goes, and how many tokens come of it."""
        tokens = self.tokens / self.steps
        return self.step, self.forward, self.masks, self.exposed, self.applying, self.accepting, tokens


async def measure(engine: TransformersEngine, batch: int, grammar: Grammar | None) -> Measured:
    """Write `batch` answers at once, and measure from when the last has begun until the first has enough."""
    counts = [0] * batch
    to_begin = set(range(batch))
    begun, ended = asyncio.Event(), asyncio.Event()

    def note_begun(number: int) -> None:
        to_begin.discard(number)
        if not to_begin:
            begun.set()

    async def write(number: int) -> None:
        prompt = Prompt(f"<|im_start|>user\nRequest {number}: what is the weather in town {number * 7919 % 997}?<|im_end|>\n")
        async with aclosing(engine.generate(prompt, SAMPLING, grammar)) as answer:
            async for item in answer:
                if isinstance(item, Piece) and item.usage:
                    counts[number] = item.usage.completion
                if counts[number] >= BEGIN and number in to_begin:
                    note_begun(number)
                if counts[number] >= END:
                    ended.set()
                if ended.is_set():
                    return
        counts[number] = 1 << 30  # it ended by itself: nobody waits for it
        note_begun(number)

    tasks = [asyncio.create_task(write(number)) for number in range(batch)]
    await first_of(begun, tasks)
    began, before, steps = time.perf_counter(), sum(n for n in counts if n < 1 << 30), engine.sampler.timings.steps
    timings = engine.sampler.timings
    at = {name: getattr(timings, name) for name in ("forward", "exposed", "applying", "accepting")}
    masks = engine.sampler.finder.seconds
    await first_of(ended, tasks)
    seconds, steps = time.perf_counter() - began, max(1, timings.steps - steps)
    tokens = sum(n for n in counts if n < 1 << 30) - before
    spent = {name: 1000 * (getattr(timings, name) - value) / steps for name, value in at.items()}
    spent["masks"] = 1000 * (engine.sampler.finder.seconds - masks) / steps
    await asyncio.gather(*tasks)
    while engine.working:
        await asyncio.sleep(0.01)
    return Measured(tokens, seconds, steps, **spent)


async def first_of(event: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the event, or for an answer that fails, whose error is raised."""
    waiting = {asyncio.ensure_future(event.wait()), *tasks}
    while not event.is_set():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def measure_in_turn(engine: TransformersEngine, batch: int) -> dict[str, list[Measured]]:
    """What each way takes, round after round. Shapes are captured and grammars compiled in a round before."""
    ways = [("free", None, False), ("constrained", tools_grammar(), False)]
    if batch <= engine.sampler.most_skipping:
        ways.append(("fast-forward", tools_grammar(), True))
    measured: dict[str, list[Measured]] = {way: [] for way, _, _ in ways}
    for number in range(1 + (ROUNDS if GPU else 1)):
        for way, grammar, fast_forward in ways:
            engine.fast_forward = fast_forward
            speed = asyncio.run(measure(engine, batch, grammar))
            if number:
                measured[way].append(speed)
    for way, rounds in measured.items():
        rate, step = median(speed.rate for speed in rounds), median(speed.step for speed in rounds)
        print(f"  batch {batch}, {way}: {rate:.0f} tokens/s, {step:.2f} ms a step", flush=True)
    return measured


def compare_lexers(vocabulary: Vocabulary, answers: int, threads: int, steps: int = 40) -> None:
    """What it takes to find the masks of several answers in one grammar, where they share a lexer and where they do not."""
    executor, words = llguidance.LLExecutor(num_threads=threads), -(-vocabulary.size // 32)
    masks = np.zeros((answers, words), np.uint32)
    grammar = tools_grammar()
    spent: list[float] = []
    for lexers in (1, answers):
        compiler, random = Compiler(vocabulary, lexers), np.random.default_rng(0)
        constraints = [compiler.begin(grammar) for _ in range(answers)]
        matchers = [(active.matcher, row) for row, active in enumerate(constraints)]
        times: list[float] = []
        for _ in range(steps):
            began = time.perf_counter()
            executor.unsafe_compute_mask_ptr(matchers, masks.ctypes.data, words * 4, answers)
            times.append(time.perf_counter() - began)
            for constraint, mask in zip(constraints, masks, strict=True):
                allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                constraint.consume(int(random.choice(allowed)))
        compiler.close()
        spent.append(1000 * sum(sorted(times)[: steps // 2]) / (steps // 2))  # the better half: others use the processors too
    shared, own = spent
    print(
        f"  masks of {answers} answers in {threads} threads: {shared:.2f} ms a step with one lexer for all, "
        f"{own:.2f} ms with one for each: {shared / own:.1f} times as fast",
        flush=True,
    )


def check_kernel() -> None:
    """The Triton kernel does what the plain operations do."""
    if not GPU:
        return
    torch.manual_seed(1)
    logits, width = torch.randn(5, 5000, device="cuda"), 5000
    bits = torch.randint(-(2**31), 2**31, (5, -(-width // 32)), dtype=torch.int32, device="cuda")
    kinds = torch.tensor([-1, 0, FIRST_QUOTE, FIRST_QUOTE + 1, 0], dtype=torch.int32, device="cuda")
    bonus = torch.randn(2, width, device="cuda")
    wanted = logits.cpu()
    apply_masks(wanted, bits.cpu(), kinds.cpu(), bonus.cpu())
    apply_masks(logits, bits, kinds, bonus)
    print(f"  the kernel equals plain operations: {torch.equal(logits.cpu(), wanted)}")


def check_graphs(engine: TransformersEngine) -> None:
    """A step that is replayed as a CUDA graph gives the logits of one that is not."""
    context = engine._context
    rows = [(token, place, 0, place == 9) for place, token in enumerate(range(100, 110))]
    context.decode(rows)
    first = [context.decode([(110 + n, 10 + n, 0, True)]) and context.all_logits[0].clone() for n in range(3)]
    context.captures, kept = False, context.captures
    context.decode(rows)
    second = [context.decode([(110 + n, 10 + n, 0, True)]) and context.all_logits[0].clone() for n in range(3)]
    context.captures = kept
    most = max(float((one - two).abs().max()) for one, two in zip(first, second, strict=True))
    print(f"  graphs in use: {kept}; logits with and without differ by at most {most:.4f}")


def attempt(what: str, run: Callable[[], Any]) -> Any:
    """What `run` gives; an error is shown, and the rest goes on: time on a GPU is dear."""
    try:
        return run()
    except Exception as error:
        import traceback

        traceback.print_exc()
        print(f"  {what} failed: {error}", flush=True)
        return None


def main(model: str = "") -> None:
    """Measure; `model` is of no account, for the weights are random."""
    name = torch.cuda.get_device_name() if GPU else "CPU (the figures say nothing)"
    print(f"{name}, PyTorch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    batches = BATCHES if GPU else (1, 4)
    attempt("the kernel", check_kernel)
    checkpoint = make_checkpoint()
    rows: list[tuple[Any, ...]] = []
    details: list[tuple[Any, ...]] = []
    at_64: Measured | None = None
    for batch in batches:
        engine = open_random(checkpoint, batch)
        if batch == batches[0]:
            print(f"  {engine.info.description}, vocabulary of {engine.vocabulary.size}", flush=True)
            attempt("comparing graphs", lambda engine=engine: check_graphs(engine))
            attempt("comparing lexers", lambda engine=engine: compare_lexers(engine.vocabulary, 64, engine.sampler.threads))
        engine._context.measures = True
        engine._context.looks_up = False  # the calls repeat themselves
        measured = attempt(f"batch {batch}", lambda engine=engine, batch=batch: measure_in_turn(engine, batch))
        asyncio.run(engine.close())
        if GPU:
            torch.cuda.empty_cache()
        if not measured:
            continue
        rates = {way: [speed.rate for speed in rounds] for way, rounds in measured.items()}
        for way in [way for way in rates if way != "free"]:
            least = LEAST_SHARES.get(batch) if way == "constrained" else None
            compare(f"{way}, {batch} at once", "tokens/s", rates[way], "free", rates["free"], more_is_better=True, goal=least)
        typical = {way: sorted(rounds, key=lambda speed: speed.rate)[len(rounds) // 2] for way, rounds in measured.items()}
        free, held, fast = typical["free"], typical["constrained"], typical.get("fast-forward")
        rows.append((batch, free.rate, held.rate, fast.rate if fast else "", free.step, held.step, held.share))
        at_64 = held if batch == 64 else at_64
        details += [(f"{batch}, {way}", *speed.details) for way, speed in typical.items()]
    if not rows:
        return
    show(
        "random weights: tokens a second for all answers together, and milliseconds a step",
        ("batch", "free /s", "constrained /s", "fast-forward /s", "free ms", "constrained ms", "masks %"),
        rows,
    )
    show(
        "where a step goes, in ms: masks are found while the GPU computes; it waits for them only as long as they are exposed",
        ("", "step", "forward", "masks", "exposed", "applying", "accepting", "tokens"),
        details,
    )
    if at_64:
        goal("masks and their application at batch 64, % of a step,", at_64.share, 3)


if __name__ == "__main__":
    main()
