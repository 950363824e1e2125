"""Many answers at once, without a model: who gets how much of each step, and what becomes of the others."""

from random import Random

import pytest

pytest.importorskip("numpy")


from callsmith.core.errors import ModelError
from callsmith.engines.decoding.batch import PREFILL_CHUNK
from callsmith.engines.port import Finished
from tests.engines.decoding.fake_batch import Decoder, FakeSequence, batch_of, finish, prompt


def test_all_who_speak_go_forward_in_one_decode() -> None:
    jobs = [FakeSequence(number, prompt(number)) for number in range(8)]
    batch = batch_of(*jobs)
    finish(batch)
    assert all(job.whole for job in jobs)
    assert batch.steps == 5


def test_those_who_do_not_fit_wait_for_their_turn_in_the_order_of_coming() -> None:
    jobs = [FakeSequence(number, prompt(number)) for number in range(5)]
    batch = batch_of(*jobs, most=2)
    over: list[int] = []
    while batch.size:
        batch.step()
        over += [job.number for job in jobs if job.ended and job.number not in over]
    assert over == [0, 1, 2, 3, 4]


def test_a_long_prompt_does_not_stall_who_speaks() -> None:
    speaking, long = FakeSequence(1, prompt(1), 60), FakeSequence(2, prompt(2, 900), 3)
    batch = batch_of(speaking)
    batch.step()
    batch.add(long)
    while not long.pieces:
        before = len(speaking.pieces)
        batch.step()
        assert len(speaking.pieces) == before + 1
        assert len(batch.decoder.batches[-1]) <= PREFILL_CHUNK + 1  # type: ignore[attr-defined]
    finish(batch)
    assert speaking.whole
    assert long.whole


def test_a_short_prompt_is_not_held_up_by_a_long_one() -> None:
    long, short = FakeSequence(1, prompt(1, 900)), FakeSequence(2, prompt(2, 30))
    batch = batch_of(long, short)
    batch.step()
    assert short.pieces
    assert not long.pieces


def test_answers_that_begin_alike_read_their_beginning_once() -> None:
    common = prompt(9, 300)
    jobs = [FakeSequence(number, [*common, *prompt(number, 10)], 2) for number in range(8)]
    batch = batch_of(*jobs)
    finish(batch)
    assert all(job.whole for job in jobs)
    assert batch.decoder.tokens == 300 + 8 * 11  # type: ignore[attr-defined]
    usages = [job.ended[0].usage for job in jobs if isinstance(job.ended[0], Finished)]
    assert [usage.cached for usage in usages] == [0] + [300] * 7


def test_a_second_turn_pays_only_for_what_is_new() -> None:
    first = FakeSequence(1, prompt(1, 100), 10)
    batch = batch_of(first)
    finish(batch)
    answer = [10_000 + number for number in range(1, 11)]
    second = FakeSequence(2, [*first.tokens, *answer, *prompt(2, 7)])
    batch.add(second)
    finish(batch)
    assert isinstance(second.ended[0], Finished)
    assert second.ended[0].usage.cached == 100 + 9  # the last token was chosen, but never decoded


def test_a_session_is_still_held_after_many_others() -> None:
    first = FakeSequence(1, prompt(1, 100), 10, session="s")
    batch = batch_of(first, decoder=Decoder(size=600), most=2)
    finish(batch)
    for number in range(2, 20):
        batch.add(FakeSequence(number, prompt(number, 100)))
        finish(batch)
    second = FakeSequence(30, [*first.tokens, *prompt(30, 7)], session="s")
    batch.add(second)
    finish(batch)
    assert isinstance(second.ended[0], Finished)
    assert second.ended[0].usage.cached == 100


def test_an_answer_given_up_is_parked_with_what_it_has() -> None:
    job = FakeSequence(1, prompt(1, 100), 50)
    batch = batch_of(job)
    for _ in range(10):
        batch.step()
    job.flag[0] = b"1"
    finish(batch, 2)
    assert job.ended == [None]
    again = FakeSequence(2, [*job.tokens, *(10_000 + number for number in range(1, 8)), 5])
    batch.add(again)
    finish(batch)
    assert isinstance(again.ended[0], Finished)
    assert again.ended[0].usage.cached == 107


def test_what_an_answer_has_cost_comes_with_each_piece() -> None:
    job = FakeSequence(1, prompt(1, 100), 4)
    finish(batch_of(job))
    assert [(piece.usage.prompt, piece.usage.completion) for piece in job.pieces if piece.usage] == [
        (100, 1),
        (100, 2),
        (100, 3),
        (100, 4),
    ]


def test_an_error_in_one_answer_does_not_hurt_the_others() -> None:
    jobs = [FakeSequence(number, prompt(number), fails_at=2 if number == 1 else None) for number in range(4)]
    finish(batch_of(*jobs))
    assert isinstance(jobs[1].ended[0], ValueError)
    assert all(job.whole for job in jobs if job.number != 1)


def test_an_answer_whose_grammar_is_not_there_yet_waits_alone() -> None:
    late, other = FakeSequence(1, prompt(1)), FakeSequence(2, prompt(2))
    late.ready = False
    batch = batch_of(late, other)
    while batch.step():
        pass
    assert other.whole
    assert not late.pieces
    late.ready = True
    finish(batch)
    assert late.whole


def test_when_the_cells_run_out_the_youngest_waits_and_all_are_finished_in_the_end() -> None:
    decoder = Decoder(size=300, slice=64)
    jobs = [FakeSequence(number, prompt(number, 40), 200) for number in range(4)]
    for job in jobs:
        job.room = 260
    finish(batch_of(*jobs, decoder=decoder))
    assert all(job.whole for job in jobs)


def test_parked_answers_make_room_for_new_ones() -> None:
    decoder = Decoder(size=300, slice=64)
    batch = batch_of(decoder=decoder)
    for number in range(10):
        job = FakeSequence(number, prompt(number, 100))
        batch.add(job)
        finish(batch)
        assert job.whole
    again = FakeSequence(20, prompt(9, 100))
    batch.add(again)
    finish(batch)
    assert isinstance(again.ended[0], Finished)
    assert again.ended[0].usage.cached == 99


def test_only_one_who_is_alone_is_interrupted_in_the_middle_of_a_decode() -> None:
    one, two = FakeSequence(1, prompt(1)), FakeSequence(2, prompt(2))
    decoder = Decoder()
    batch = batch_of(one, decoder=decoder)
    batch.step()
    assert decoder.flag is one.flag
    batch.add(two)
    batch.step()
    assert decoder.flag is batch.stop


def test_a_decode_that_is_interrupted_leaves_no_trace() -> None:
    decoder = Decoder()
    job = FakeSequence(1, prompt(1))
    batch = batch_of(job, decoder=decoder)
    batch._admit()
    job.flag[0] = b"1"
    batch._prepare(batch.live[0])
    batch._decode(batch._token_shares())
    assert decoder.cells[0] == []
    job.flag[0] = b"0"
    finish(batch)
    assert job.whole


def test_a_decode_that_fails_ends_all_it_was_for_and_nobody_else() -> None:
    decoder = Decoder()
    jobs = [FakeSequence(number, prompt(number)) for number in range(3)]
    batch = batch_of(*jobs, most=2, decoder=decoder)
    decoder.broken = ModelError("broken")
    finish(batch)
    assert [isinstance(job.ended[0], ModelError) for job in jobs] == [True, True, False]
    assert jobs[2].whole


def test_a_decode_for_which_there_is_no_room_is_tried_again_with_fewer() -> None:
    decoder = Decoder()
    jobs = [FakeSequence(number, prompt(number)) for number in range(3)]
    batch = batch_of(*jobs, decoder=decoder)
    decoder.broken = ModelError("no room", retryable=True)
    finish(batch)
    assert all(job.whole for job in jobs)


@pytest.mark.parametrize("seed", range(20))
def test_who_goes_at_random_harms_nobody(seed: int) -> None:
    random = Random(seed)
    decoder = Decoder(size=600, slice=64)
    batch = batch_of(most=4, decoder=decoder)
    jobs: list[FakeSequence] = []
    beginnings = [prompt(number, 80) for number in range(3)]
    while len(jobs) < 40 or batch.size:
        if len(jobs) < 40 and random.random() < 0.4:
            tokens = [*random.choice(beginnings), *prompt(len(jobs) + 10, random.randint(1, 60))]
            jobs.append(FakeSequence(len(jobs) + 10, tokens, random.randint(1, 60)))
            jobs[-1].ready = random.random() < 0.7
            batch.add(jobs[-1])
        for job in jobs:
            if random.random() < 0.01:
                job.flag[0] = b"1"
            job.ready = job.ready or random.random() < 0.3
        batch.step()
        for member in batch.live:
            if member.slot:
                assert decoder.cells.get(member.slot.number, []) == member.slot.tokens
        assert batch.cache.free >= 0
    for job in jobs:
        assert len(job.ended) == 1
        assert job.whole or job.is_cancelled


def test_a_caller_who_sends_much_does_not_make_others_wait_for_all_of_it():
    many = [FakeSequence(number, [number] * 3, caller="many") for number in range(1, 11)]
    few = FakeSequence(20, [20] * 3, caller="few")
    batch = batch_of(*many, few, most=2)
    while not few.ended:
        batch.step()
    assert few.whole
    assert sum(len(job.ended) for job in many) <= 3  # of ten


def test_it_is_known_how_far_prompts_are_read() -> None:
    batch = batch_of(FakeSequence(1, prompt(1, 900), 3))
    seen = [batch.prefill_progress()]
    while batch.size:
        batch.step()
        seen.append(batch.prefill_progress())
    assert seen[0] == (0, 900)
    reading = [done for done, total in seen if total]
    assert len(reading) > 1 and reading == sorted(reading) and reading[-1] < 900
    assert seen[-1] == (0, 0)


def test_a_decode_is_exact_for_whoever_needs_it() -> None:
    decoder = Decoder()
    finish(batch_of(FakeSequence(1, prompt(1, 10), 3), decoder=decoder))
    assert not any(decoder.exact)
    seeded = FakeSequence(2, prompt(2, 10), 3)
    seeded.exact = True
    decoder.exact.clear()
    finish(batch_of(seeded, decoder=decoder))
    assert decoder.exact and all(decoder.exact)
