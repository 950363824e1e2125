"""A real checkpoint: SmolLM2-135M as a folder, and as a GGUF file of the same numbers, both made from the quantised file once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small import small_file

THREADS_HERE = 1  # where the processors are busy with other things, threads that wait for each other take ten times as long


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.engines.transformers.conversion import write_folder

    return write_folder(small_file(), tmp_path_factory.mktemp("checkpoint") / "SmolLM2-135M-Instruct")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gguf import GGUFReader

    from tests.engines.transformers.conversion import write_tokenizer

    target = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(GGUFReader(small_file()), target)
    return target


@pytest.fixture(scope="session")
def shared(folder: Path) -> Iterator[object]:
    from callsmith.engines import open_engine

    engine = open_engine(f"transformers:{folder}", context=512, live=4, threads=THREADS_HERE, device="cpu")
    yield engine
    asyncio.run(engine.close())
