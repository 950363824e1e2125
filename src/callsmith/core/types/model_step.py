"""`ModelStep`: what a model was given and what it wrote, for whoever wants to see how an answer came about; `CallDecision`:
whether tools were called, and why."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallDecision:
    """Whether an answer calls tools, as decided before it was written.

    `score` is how much likelier a call is than none, as the model's log odds; from `threshold` on there are `calls`. A request's
    `call_bias` is part of the threshold already: one of 2 lowers it by 2.
    """

    calls: bool
    score: float
    threshold: float


@dataclass(frozen=True, slots=True)
class ModelStep:
    """One time that a model was asked. An answer may take several: one for each round of calls, and those that were taken back.

    `prompt` is the text as the model got it, `grammar` what constrained its answer, as the engine got it; empty: nothing did.
    `text` is what it wrote, calls and reasoning in its own spelling. `repairs` names what had to be repaired to read that. Of a
    model on another server, `prompt` is the body of the request, and `text` what is known of its answer. `decision` is why the
    model was asked for calls, or for words, where that was decided.
    """

    prompt: str
    text: str = ""
    grammar: str = ""
    repairs: tuple[str, ...] = ()
    seconds: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    decision: CallDecision | None = None
