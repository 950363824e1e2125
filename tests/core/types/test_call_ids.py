from callsmith.core.types.call_ids import CallIds


def test_an_id_that_is_free_stays_and_one_that_is_taken_becomes_another():
    ids = CallIds(["earlier"])
    assert ids.claim("a") == "a"
    assert ids.claim("a") == "a_2" and ids.claim("a") == "a_3"
    assert ids.claim("earlier", "other") == "other"
    assert ids.claim("", "other") == "other_2", "no call without an id of its own"
    assert len({ids.claim("") for _ in range(3)}) == 3
    assert len(ids) == 9
