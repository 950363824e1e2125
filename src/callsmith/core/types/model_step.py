"""`ModelStep`: what a model was given and what it wrote, for whoever wants to see how an answer came about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelStep:
    """One time that a model was asked. An answer may take several: one for each round of calls, and those that were taken back.

    `prompt` is the text as the model was given it, `grammar` what held its answer, as the engine is told it; empty: nothing did.
    `text` is what it wrote, calls and reasoning in its own spelling. `repairs` names what had to be mended to read that. Of a
    model on another server, `prompt` is the body of the request, and `text` what is known of its answer.
    """

    prompt: str
    text: str = ""
    grammar: str = ""
    repairs: tuple[str, ...] = ()
    seconds: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
