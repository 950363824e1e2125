"""Revocations in a file: shared by processes, there after a restart, and safe when they cannot be read."""

import stat
from pathlib import Path

import pytest

from callsmith.bus.trust.revocations import RevocationFile
from callsmith.wire.capability.errors import BusError


def test_what_one_process_revokes_another_knows_at_once_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "revoked.jsonl"
    first, other = RevocationFile(path), RevocationFile(path)
    assert not other.is_revoked("token", "01J")
    first.revoke("token", "01J")
    assert other.is_revoked("token", "01J") and first.is_revoked("token", "01J")
    assert not other.is_revoked("issuer", "01J") and not other.is_revoked("token", "01j")
    other.revoke("issuer", "ed25519:x")
    assert first.is_revoked("issuer", "ed25519:x")
    assert RevocationFile(path).is_revoked("token", "01J")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_ids_are_written_whatever_they_consist_of(tmp_path: Path) -> None:
    path = tmp_path / "revoked.jsonl"
    for id in ('"}\n{"token": "x"', "\u2028", "é", "\ud800"):
        RevocationFile(path).revoke("token", id)
        assert RevocationFile(path).is_revoked("token", id)
    assert not RevocationFile(path).is_revoked("token", "x")


@pytest.mark.parametrize(
    "line", ["{", "[]", '"token"', '{"token": 1}', '{"jti": "x"}', "{}", '{"token": "x", "issuer": "y"}', "\x00"]
)
def test_a_file_with_a_broken_line_refuses_everything_and_names_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "revoked.jsonl"
    file = RevocationFile(path)
    file.revoke("token", "01J")
    with path.open("a") as out:
        out.write(f"{line}\n")
    with pytest.raises(BusError, match="line 2") as refused:
        file.is_revoked("token", "whatever")
    assert refused.value.code == "internal_error"
    path.write_text('{"token": "01J"}\n')
    assert file.is_revoked("token", "01J") and not file.is_revoked("token", "whatever")


def test_a_line_that_is_being_written_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "revoked.jsonl"
    file = RevocationFile(path)
    path.write_text('{"token": "a"}\n{"tok')
    assert file.is_revoked("token", "a")
    with path.open("a") as out:
        out.write('en": "b"}\n')
    assert file.is_revoked("token", "b")


def test_what_is_written_behind_half_a_line_is_not_lost_in_it(tmp_path: Path) -> None:
    path = tmp_path / "revoked.jsonl"
    path.write_text('{"token": "a"}')
    RevocationFile(path).revoke("token", "b")
    assert RevocationFile(path).is_revoked("token", "a") and RevocationFile(path).is_revoked("token", "b")


def test_a_file_that_disappears_takes_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "revoked.jsonl"
    file = RevocationFile(path)
    file.revoke("token", "a")
    assert file.is_revoked("token", "a")
    path.unlink()
    assert file.is_revoked("token", "a")


def test_a_file_that_cannot_be_read_refuses_everything(tmp_path: Path) -> None:
    path = tmp_path / "revoked.jsonl"
    path.mkdir()
    with pytest.raises(BusError, match="cannot be read"):
        RevocationFile(path).is_revoked("token", "a")
