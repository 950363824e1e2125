"""How many layers go to GPUs: arithmetic over the header of a GGUF file and the free memory."""

import random
import struct
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from callsmith.engines.llama.placement import Demand, Device, Header, Placement, demand_of, layers_that_fit, place, read_header
from callsmith.engines.llama.trial_decode import VOCABULARY, write_tiny_model
from tests.small import small_file

GIB = 1 << 30


def device(free: int, number: int = 0) -> Device:
    return Device(f"CUDA{number}", "NVIDIA H200", free, 139 * GIB)


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        ([0], 0),
        ([100], 0),
        ([130], 1),
        ([1000], 4),
        ([169], 1),
        ([170], 2),
        ([119, 100], 1),
        ([120, 100], 2),
        ([249], 3),
        ([250], 4),
        ([], 0),
    ],
)
def test_as_many_layers_as_fit_behind_the_output_and_the_working_space_of_each_device(free: list[int], expected: int) -> None:
    demand = Demand(layers=(40, 40, 40, 30), output=50, working=50)
    assert layers_that_fit(demand, free) == expected


def test_layers_are_counted_from_the_last_one() -> None:
    assert layers_that_fit(Demand((1, 1, 100)), [50]) == 0
    assert layers_that_fit(Demand((100, 1, 1)), [50]) == 2


def test_the_kv_cache_counts_with_the_layer_it_belongs_to() -> None:
    metadata = {
        "general.architecture": "toy", "toy.block_count": 2, "toy.embedding_length": 64, "toy.attention.head_count": 4,
        "toy.attention.head_count_kv": [2, 0], "toy.vocab_size": 10,
    }  # fmt: skip
    tensors = {"blk.0.a": 1000, "blk.1.a": 500, "blk.1.b": 7, "token_embd.weight": 90, "output_norm.weight": 1, "blk.9.a": 3}
    demand = demand_of(Header(metadata, tensors), context=100, outputs=4)
    assert demand.layers == (1000 + 100 * 2 * (16 + 16) * 2, 507)
    assert demand.output == 91  # where the output has no weights of its own, those of the input are copied
    metadata |= {"toy.attention.key_length": 8, "toy.attention.value_length": 24, "toy.attention.head_count_kv": 1}
    layer_demand = demand_of(Header(metadata, {**tensors, "output.weight": 40}), context=100, outputs=4)
    assert layer_demand.layers == (1000 + 6400, 507 + 6400) and layer_demand.output == 41
    assert layer_demand.working - demand_of(Header(metadata, tensors), context=100, outputs=1).working == 3 * 10 * 4


def test_all_layers_go_where_they_fit_and_what_the_user_wants_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_model(file)
    plenty, little = (device(2 * GIB),), (device(1 << 20),)
    assert place(file, plenty) == Placement(2, 2, plenty)
    assert str(place(file, plenty)) == "2 of 2 layers on CUDA0 (NVIDIA H200, 139 GiB)"
    assert place(file, plenty).parameter == -1
    assert str(place(file, little)) == (
        "on the processor; CUDA0 (NVIDIA H200, 139 GiB) is not used: too little of its memory is free"
    )
    assert place(file, little, wanted=1).layers == 1 and place(file, little, wanted=1).parameter == 2
    assert place(file, plenty, wanted=99).layers == 2
    none = place(file, plenty, wanted=0)
    assert none.parameter == 0 and str(none).endswith("is not used: as chosen")
    assert place(file, ()) == Placement() and str(place(file, ())) == ""


def test_several_gpus_are_counted_together_and_named(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_model(file)
    demand = demand_of(read_header(file), context=256, outputs=256)
    each = demand.working + (sum(demand.layers) + demand.output) // 2 + 1
    two = (device(each), device(each, 1))
    assert place(file, two[:1]).layers < 2
    assert str(place(file, two)) == "2 of 2 layers on CUDA0 (NVIDIA H200, 139 GiB) and CUDA1 (NVIDIA H200, 139 GiB)"


def test_a_longer_context_leaves_room_for_fewer_layers_up_to_what_the_model_was_trained_for(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_model(file)
    header = read_header(file)
    short, long = (demand_of(header, context=context, outputs=256) for context in (16, 256))
    room = (device(short.working + short.output + sum(short.layers)),)
    assert place(file, room, context=16).layers == 2 and place(file, room, context=256).layers < 2
    enough = (device(long.working + long.output + sum(long.layers)),)
    assert place(file, enough, context=1_000_000).layers == 2


def test_the_header_of_the_tiny_model_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_model(file)
    header = read_header(file)
    assert (header.layers, header.number("vocab_size"), header.number("nothing", 7)) == (2, VOCABULARY, 7)
    assert header.tensors["blk.0.attn_q.weight"] == 64 * 64 * 2
    assert header.tensors["output.weight"] == 64 * VOCABULARY // 32 * 34
    assert sum(header.tensors.values()) <= file.stat().st_size


def test_the_parts_of_a_split_file_are_read_together(tmp_path: Path) -> None:
    for number in (1, 2):
        write_tiny_model(tmp_path / f"m-{number:05}-of-00002.gguf")
    whole = read_header(tmp_path / "m-00001-of-00002.gguf")
    assert whole.layers == 2
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(ValueError, match="m-00002-of-00002"):
        read_header(tmp_path / "m-00001-of-00002.gguf")


def test_a_broken_file_is_a_value_error_whatever_is_broken_and_left_to_the_library(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    write_tiny_model(file)
    sound, chance = file.read_bytes(), random.Random(1)
    header = sound[:2000]
    broken = [b"", b"GGUF", header[:100], b"GGML" + header[4:], struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 2**60)]
    for _ in range(400):
        data = bytearray(header)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        broken.append(bytes(data))
    for content in broken:
        file.write_bytes(content)
        try:
            read_header(file)
        except ValueError:
            placed = place(file, (device(2 * GIB),))
            assert placed.parameter == -1 and str(placed) == "all layers on CUDA0 (NVIDIA H200, 139 GiB)"


@pytest.mark.weights
def test_a_real_file_is_measured_to_the_byte() -> None:
    file = small_file()
    header = read_header(file)
    assert header.layers == 30
    assert all(header.layer_bytes())
    assert 0 < file.stat().st_size - sum(header.tensors.values()) < 4_000_000  # metadata and vocabulary
    assert str(place(file, (device(2 * GIB),), context=1024)).startswith("30 of 30 layers on CUDA0")
    demand = demand_of(header, context=1024, outputs=256)
    assert demand.layers[0] - header.layer_bytes()[0] == 1024 * 3 * 128 * 2
