"""Caches: what was used last stays, and no key ever stands for another object."""

import gc

from callsmith.engines.lru import LRU, IdentityLRU


def test_what_was_used_longest_ago_is_evicted_first():
    cache = LRU[str](2)
    cache.put("a", "A")
    cache.put("b", "B")
    assert cache.get("a") == "A"
    cache.put("c", "C")
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == ("A", None, "C", 2)


def test_weights_count_instead_of_entries():
    cache = LRU[str](10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    cache.put("c", "C", 8)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, None, "C")


def test_the_first_of_two_values_for_a_key_stays():
    cache = LRU[str](2)
    assert cache.put("a", "first") == cache.put("a", "second") == "first"


def test_the_same_objects_are_found_in_their_order_and_with_their_key():
    cache, one, two = IdentityLRU[object](8), {"a": 1}, {"a": 1}
    value = cache.get_or_make([one, two], object)
    assert cache.get_or_make((one, two), object) is value
    assert cache.get_or_make([two, one], object) is not value
    assert cache.get_or_make([one], object) is not value
    assert cache.get_or_make([one, two], object, "other key") is not value


def test_an_object_with_the_id_of_one_that_is_gone_is_not_taken_for_it():
    cache = IdentityLRU[int](4)
    for number in range(500):  # objects that are dropped at once: their places in memory are used again
        assert cache.get_or_make([[number]], lambda number=number: number) == number
        if number % 100 == 0:
            gc.collect()


def test_none_is_a_value_like_any_other():
    cache, key, additions = IdentityLRU[None](4), object(), []
    for _ in range(2):
        cache.get_or_make([key], lambda: additions.append(1))
    assert additions == [1]


def test_a_value_takes_the_place_of_another_and_so_does_its_weight() -> None:
    cache = LRU[str](10)
    cache.put("other", "o", 4)
    for weight in (6, 2, 6):
        cache.set("key", f"weighs {weight}", weight)
    assert (cache.get("key"), cache.get("other")) == ("weighs 6", "o")
    cache.set("key", "weighs 7", 7)
    assert (cache.get("key"), cache.get("other")) == ("weighs 7", None)
