"""`callsmith bus`: the node's id, and tokens that are issued, shown and revoked."""

import json
from pathlib import Path

import pytest

from callsmith.bus.trust.identity import Identity, is_node_id, load_identity
from callsmith.bus.trust.revocations import RevocationFile
from callsmith.bus.trust.tokens import read_token
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.cli.bus.calls import _parse_body
from callsmith.core.errors import UsageError
from callsmith.wire.capability.errors import BusError

FRIEND = Identity.create().node_id


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


def test_the_id_is_the_same_each_time_and_the_key_is_not_shown(callsmith, config: Path) -> None:
    first, second = callsmith("bus", "id"), callsmith("bus", "id")
    assert first.code == 0 and first.out == second.out and is_node_id(first.out.strip())
    assert load_identity(config / "node.pem").node_id == first.out.strip()
    secret = (config / "node.pem").read_text().splitlines()[1]
    assert secret not in first.out + first.err


def test_a_node_may_have_its_key_elsewhere(callsmith, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.pem"
    assert callsmith("bus", "id", "--bus-identity", str(path)).out.strip() == load_identity(path).node_id
    path.chmod(0o644)
    refused = callsmith("bus", "id", "--bus-identity", str(path))
    assert refused.code == 2 and "chmod 600" in refused.err


def test_where_the_key_is_may_stand_in_the_settings(callsmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "of the settings.pem"
    monkeypatch.setenv("CALLSMITH_BUS__IDENTITY", str(path))
    assert callsmith("bus", "id").out.strip() == load_identity(path).node_id
    assert callsmith("bus", "token", "revoke", "01J").code == 0
    assert RevocationFile(tmp_path / "revocations.jsonl").is_revoked("token", "01J")


def issued(callsmith, *options: str) -> str:
    result = callsmith("bus", "token", "issue", "--subject", FRIEND, "--capability", "rag.query@1.0", *options)
    assert result.code == 0, result.err
    return result.out.strip()


def test_a_token_is_issued_shown_accepted_and_revoked(callsmith, config: Path) -> None:
    here = callsmith("bus", "id").out.strip()
    text = issued(
        callsmith, "--param", "corpus=village", "--param", "corpus=city", "--calls", "5", "--rate", "2", "--lasts", "8h"
    )
    description = json.loads(callsmith("bus", "token", "show", "-", stdin=text).out)
    (link,) = description["links"]
    assert description["state"].startswith("valid")
    assert link["scope"]["params_constraints"] == {"corpus": ["village", "city"]}
    token = read_token(text)
    assert (token.sub, token.aud, token.exp - token.iat) == (FRIEND, here, 8 * 3600)

    verifier = TokenVerifier(here, "", {here: "member"}, RevocationFile(config / "revocations.jsonl"))
    verifier.verify(text, FRIEND)
    revoked = callsmith("bus", "token", "revoke", "-", stdin=text)
    assert revoked.code == 0 and token.jti in revoked.out and text not in revoked.out
    with pytest.raises(BusError) as refused:
        verifier.verify(text, FRIEND)
    assert refused.value.code == "token_revoked"


def test_all_tokens_of_an_issuer_are_revoked_by_its_id(callsmith, config: Path) -> None:
    here = callsmith("bus", "id").out.strip()
    verifier = TokenVerifier(here, "", {here: "member"}, RevocationFile(config / "revocations.jsonl"))
    text = issued(callsmith)
    verifier.verify(text, FRIEND)
    assert callsmith("bus", "token", "revoke", here).code == 0
    with pytest.raises(BusError) as refused:
        verifier.verify(text, FRIEND)
    assert refused.value.code == "revoked"


def test_revocations_stand_beside_the_key(callsmith, tmp_path: Path) -> None:
    assert callsmith("bus", "token", "revoke", "01J", "--bus-identity", str(tmp_path / "other.pem")).code == 0
    assert RevocationFile(tmp_path / "revocations.jsonl").is_revoked("token", "01J")


def test_a_token_that_was_changed_is_shown_as_invalid(callsmith) -> None:
    head, payload, signature = issued(callsmith).split(".")
    other = issued(callsmith).split(".")[2]
    assert json.loads(callsmith("bus", "token", "show", f"{head}.{payload}.{other}").out)["state"].startswith("invalid")
    assert signature != other


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--subject", "ann", "--capability", "rag.query@1.0"], "no id of a node"),
        (["--subject", FRIEND, "--capability", "rag.query"], "rag.query@1.0"),
        (["--subject", FRIEND, "--capability", "rag.*@1.0"], "no name of a capability"),
        (["--subject", FRIEND, "--capability", "rag.query@1.0", "--lasts", "25h"], "86400"),
        (["--subject", FRIEND, "--capability", "rag.query@1.0", "--lasts", "soon"], "duration"),
        (["--subject", FRIEND, "--capability", "rag.query@1.0", "--calls", "0"], "from 1 on"),
        (["--subject", FRIEND, "--capability", "rag.query@1.0", "--param", "corpus"], "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_said(callsmith, options: list[str], why: str) -> None:
    refused = callsmith("bus", "token", "issue", *options)
    assert refused.code == 2 and why in refused.err


@pytest.mark.parametrize("command", [("show",), ("revoke",)])
def test_what_is_no_token_is_refused(callsmith, command: tuple[str, ...]) -> None:
    assert callsmith("bus", "token", *command, "hntoken://v1/x").code == 2


def test_a_body_is_an_object() -> None:
    assert _parse_body('{"params": {"corpus": "x"}}') == {"params": {"corpus": "x"}}
    for text, message in (("[]", "the body"), ("{", "no JSON")):
        with pytest.raises(UsageError, match=message):
            _parse_body(text)
