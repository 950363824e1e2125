"""Parsers of answers that are values. LangChain's own complete JSON that broke off, and make a number of half its digits."""
# pyright: basic, reportMissingImports=false

import json
from functools import partial as with_arguments
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import Generation
from langchain_core.utils.json import parse_json_markdown

_READ = with_arguments(json.loads, strict=False)  # as LangChain reads it: line breaks may stand in strings


class JsonAnswerParser(JsonOutputParser):
    """The JSON of an answer; of one that is streamed, `partial`, as much as there is."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        if not partial:
            _require_whole(result[0].text)
        return super().parse_result(result, partial=partial)


class PydanticAnswerParser(PydanticOutputParser):
    """The value of a pydantic model that an answer is; of one that is streamed, `partial`, as much as there is."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        if not partial:
            _require_whole(result[0].text)
        return super().parse_result(result, partial=partial)


def _require_whole(text: str) -> None:
    try:
        parse_json_markdown(text, parser=_READ)
    except ValueError as error:
        raise OutputParserException(f"the answer is no JSON, or broke off: {text}", llm_output=text) from error
