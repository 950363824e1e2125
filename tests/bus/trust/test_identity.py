"""Identities: made once, kept in a file that only its owner reads, and never shown."""

import multiprocessing
import os
import stat
import subprocess
from pathlib import Path

import pytest

from callsmith.bus.trust.identity import Identity, is_node_id, load_identity, verify_signature
from callsmith.core.errors import UsageError
from callsmith.wire.capability.errors import BusError


def test_what_an_identity_signs_is_verified_by_its_id_alone() -> None:
    node = Identity.create()
    signature = node.sign(b"hello")
    assert signature.startswith("ed25519:") and is_node_id(node.node_id)
    verify_signature(node.node_id, b"hello", signature)
    with pytest.raises(BusError) as refused:
        verify_signature(node.node_id, b"hello!", signature)
    assert refused.value.code == "invalid_signature"


def test_an_identity_is_made_on_first_use_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "node.pem"
    first = load_identity(path)
    assert load_identity(path).node_id == first.node_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def _load(path: Path) -> str:
    return load_identity(path).node_id


def test_processes_that_start_at_once_have_one_identity(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert len(set(pool.map(_load, [path] * 12))) == 1


def test_a_key_that_openssl_made_is_an_identity(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    assert is_node_id(load_identity(path).node_id)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_may_read_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "node.pem"
    load_identity(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        load_identity(path)


RSA = "openssl genpkey -algorithm rsa -pkeyopt rsa_keygen_bits:1024"


@pytest.mark.parametrize(
    "content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", bytes(100)]
)
def test_a_broken_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="no private key"):
        load_identity(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("command", "why"), [(RSA, "another kind"), ("openssl genpkey -algorithm ed25519 -aes256 -pass pass:x", "without a password")]
)
def test_other_keys_are_refused(tmp_path: Path, command: str, why: str) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(subprocess.run(command.split(), check=True, capture_output=True).stdout)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=why):
        load_identity(path)


def test_a_folder_is_no_identity(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_identity(tmp_path)


def test_the_private_key_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    node = load_identity(path)
    secret = path.read_text().splitlines()[1]
    assert secret not in repr(node) + str(node) + node.node_id + str(vars(node))
