import pytest

from callsmith.core.types.quantities import parse_duration, parse_size, write_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("90", 90),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("0", 0),
        ("0s", 0),
        ("-1", None),
        ("-5m", None),
        ("never", None),
    ],
)
def test_durations_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 minutes", "m", "5x", "-", "inf", "nan", "1e999"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"), [("8GB", 8 * 10**9), ("1.5 GiB", 3 << 29), ("512mib", 512 << 20), ("7", 7), ("2k", 2000)]
)
def test_sizes_are_read_as_people_write_them(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1", "8 GBit", "ib", "5ib", "1e9"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_sizes_are_written_for_people():
    assert [write_size(count) for count in (98_362_432, 1_540_000_000)] == ["98 MB", "1.5 GB"]
