"""Hostile capability tokens: none lets a call in, each is refused with its code, and the good ones among them do work.

A table of (what, token, code); "" is the code of those that must pass, so that a check which refuses everything fails too.
"""

import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from callsmith.bus.trust.tokens import read_token
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_world import (
    ALICE,
    BODY,
    COMMUNITY,
    FRIEND,
    HEADER,
    MALLORY,
    MODEL,
    NODE,
    NOW,
    OPERATOR,
    OTHER_NODE,
    SCOPE,
    STRANGER,
    World,
    claims,
    encode,
    envelope,
    jws,
    passed_on,
    token,
)

BAD, INVALID, EXPIRED, AUDIENCE = "bad_request", "token_invalid", "token_expired", "unauthorized"
SCOPE_CODE, SIGNATURE = "token_scope_insufficient", "invalid_signature"


class Case(NamedTuple):
    what: str
    token: str
    code: str
    sender: Any = ALICE
    params: Any = BODY["params"]


def scope(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in ({"capabilities": ["rag.query@1.0"]} | changes).items() if value is not ...}


def good() -> Iterator[Case]:
    yield Case("for this node", token(), "")
    yield Case("for the community", token(aud=COMMUNITY), "")
    yield Case("a clock that is ahead", token(nbf=NOW + 30, iat=NOW + 30), "")
    yield Case("the last second", token(exp=NOW + 1), "")
    yield Case("no nbf", token(nbf=...), "")
    yield Case("a claim that says nothing about rights", token(issued_via="manual"), "")
    yield Case("a stranger whom the operator lets in", token(sub=STRANGER.node_id), "", STRANGER)
    yield Case("a day", token(exp=NOW + 86_400), "")
    yield Case("the same minor version", token(scope=scope(capabilities=["rag.query@1.2"])), "")
    yield Case("limits", token(scope=scope(rate_limit_per_minute=1, max_calls_total=1)), "")
    yield Case("limits that are null", token(scope=scope(rate_limit_per_minute=None, max_calls_total=None)), "")
    yield Case("one of several", token(scope=scope(capabilities=["rag.query@1.1", "llm.chat@2.0"])), "")
    yield Case("passed on", passed_on(), "", MODEL)
    yield Case("passed on, one call", passed_on(scope=SCOPE | {"max_calls_total": 1, "rate_limit_per_minute": 1}), "", MODEL)
    yield Case("passed on, fewer corpora", passed_on(scope=SCOPE | {"params_constraints": {"corpus": ["village"]}}), "", MODEL)
    yield Case("passed on, a newer minor version", passed_on(scope=SCOPE | {"capabilities": ["rag.query@1.2"]}), "", MODEL)
    lent = token(aud=NODE.node_id, jti="root")
    yield Case("lent by its subject", jws(claims(iss=ALICE.node_id, sub=STRANGER.node_id, parent=lent), ALICE), "", STRANGER)
    narrowed = token(aud=COMMUNITY, jti="root")
    yield Case("addressed within the community", jws(claims(iss=ALICE.node_id, parent=narrowed), ALICE), "", ALICE)
    yield Case("the longest chain", _chain(4), "", MODEL)


def _chain(links: int) -> str:
    """A chain of so many tokens, the last of which is MODEL's for NODE."""
    text = token(aud=MODEL.node_id)
    for number in range(links - 1):
        is_last = number == links - 2
        text = jws(claims(iss=MODEL.node_id, sub=MODEL.node_id, aud=(NODE if is_last else MODEL).node_id, parent=text), MODEL)
    return text


def _parts(text: str) -> list[str]:
    return text.removeprefix("hntoken://v1/").split(".")


def malformed() -> Iterator[Case]:
    """Texts that are no token, or another spelling of one."""
    text, parts = token(), _parts(token())
    body = ".".join(parts)
    for prefix in ("", "hntoken://v2/", "hntoken://v1", "HNTOKEN://v1/", "hntoken:/v1/", "Bearer ", "hntoken://v1/hntoken://v1/"):
        yield Case(f"prefix {prefix!r}", prefix + body, BAD)
    for space in " \n\t\r\0\u200b\ufeff":
        yield Case(f"{space!r} before", space + text, BAD)
        yield Case(f"{space!r} behind", text + space, BAD)
    for wrong in ("", ".", "..", body + ".", "." + body, ".".join(parts[:2]), ".".join([*parts, parts[2]]), "x" * 9000):
        yield Case(f"{len(wrong)} characters, {wrong.count('.')} points", f"hntoken://v1/{wrong}", BAD)
    for place, part in enumerate(parts):

        def with_part(changed: str, place: int = place) -> str:
            return "hntoken://v1/" + ".".join([*parts[:place], changed, *parts[place + 1 :]])

        yield Case(f"part {place} padded", with_part(part + "=" * (-len(part) % 4 or 4)), BAD)
        yield Case(f"part {place} with a space", with_part(part[:9] + " " + part[9:]), BAD)
        yield Case(f"part {place} with a line break", with_part(part[:9] + "\n" + part[9:]), BAD)
        yield Case(f"part {place} in the other alphabet", with_part(part[:9] + "+/" + part[11:]), BAD)
        yield Case(f"part {place} with a wide letter", with_part(part[:9] + "ｅ" + part[10:]), BAD)
        yield Case(f"part {place} one character short of a byte", with_part(part + "A" * ((1 - len(part)) % 4)), BAD)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    stray = text[:-1] + alphabet[alphabet.index(text[-1]) + 1]
    assert _decode(_parts(stray)[2]) == _decode(parts[2])  # the same bytes, in a lenient reading
    yield Case("stray bits in the signature", stray, BAD)
    for size in (0, 1, 5, 20, 30):
        yield Case(f"{size} bytes of the header", jws(claims(), header=json.dumps(HEADER).encode()[:size]), BAD)
    for size in (0, 1, 50, 200):
        yield Case(f"{size} bytes of the payload", jws(json.dumps(claims()).encode()[:size]), BAD)
    for size in (0, 1, 31, 32, 63):
        yield Case(
            f"{size} bytes of signature", jws(claims(), sign=lambda data, n=size: OPERATOR.private_key.sign(data)[:n]), INVALID
        )
    yield Case("a byte behind the signature", jws(claims(), sign=lambda data: OPERATOR.private_key.sign(data) + b"\0"), INVALID)
    for what, data in {
        "an array": b"[]",
        "a text": b'"x"',
        "a number": b"1",
        "null": b"null",
        "nothing": b"",
        "a byte order mark": b"\xef\xbb\xbf" + json.dumps(claims()).encode(),
        "UTF-16": json.dumps(claims()).encode("utf-16"),
        "no UTF-8": b'{"iss": "\xff"}',
        "something behind": json.dumps(claims()).encode() + b" {}",
        "a comma too many": json.dumps(claims()).encode()[:-1] + b",}",
        "single quotes": json.dumps(claims()).replace('"', "'").encode(),
        "deep nesting": b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}",
        "a number of 5000 digits": b'{"exp":' + b"9" * 5000 + b"}",
    }.items():
        yield Case(f"the payload is {what}", jws(data), BAD)
        if len(data) < 3000:
            yield Case(f"the header is {what}", jws(claims(), header=data), BAD)
    twice = json.dumps(claims())[:-1]
    for name, value in (("exp", NOW + 9999), ("sub", MALLORY.node_id), ("aud", NODE.node_id), ("scope", {}), ("jti", "x")):
        yield Case(f"{name} twice", jws(f"{twice}, {json.dumps(name)}: {json.dumps(value)}}}".encode()), BAD)
    escaped = f'{twice}, "\\u0065xp": {NOW + 9999}}}'
    yield Case("exp twice, once escaped", jws(escaped.encode()), BAD)
    inner = json.dumps(claims(scope="SCOPE")).replace('"SCOPE"', '{"capabilities": [], "capabilities": ["rag.query@1.0"]}')
    yield Case("capabilities twice", jws(inner.encode()), BAD)
    inner = json.dumps(claims(scope="SCOPE")).replace(
        '"SCOPE"', '{"capabilities": ["rag.query@1.0"], "params_constraints": {"corpus": [], "corpus": ["village"]}}'
    )
    yield Case("a constraint twice", jws(inner.encode()), BAD)
    yield Case("alg twice", jws(claims(), header=b'{"alg":"none","typ":"hntoken","v":1,"alg":"EdDSA"}'), BAD)
    yield Case("alg twice, none last", jws(claims(), header=b'{"alg":"EdDSA","typ":"hntoken","v":1,"alg":"none"}'), BAD)


def headers() -> Iterator[Case]:
    """Headers that ask for another way of verifying, correctly signed with the issuer's key wherever that is possible."""
    algorithms = ["none", "None", "NONE", "nOnE", "", "HS256", "HS384", "HS512", "RS256", "RS512", "PS256", "ES256", "ES384"]
    algorithms += ["ES512", "ES256K", "eddsa", "EDDSA", "EdDsa", "Ed25519", "Ed448", "EdDSA ", " EdDSA", "EdDSA\0", "ＥｄＤＳＡ"]
    for alg in [*algorithms, None, 1, True, ["EdDSA"], {"EdDSA": 1}, ["none", "EdDSA"]]:
        yield Case(f"alg {alg!r}", token(header=HEADER | {"alg": alg}), INVALID)
    for alg in ("none", "None", "NONE", ""):
        yield Case(f"alg {alg!r} and no signature", jws(claims(), header=HEADER | {"alg": alg}, sign=lambda data: b""), INVALID)
    yield Case("EdDSA and no signature", jws(claims(), sign=lambda data: b""), INVALID)
    public = OPERATOR.private_key.public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for what, secret in {"raw": raw, "PEM": pem, "id": OPERATOR.node_id.encode(), "empty": b""}.items():
        for size in ("256", "384", "512"):
            made = jws(
                claims(),
                header=HEADER | {"alg": f"HS{size}"},
                sign=lambda data, secret=secret, size=size: hmac.digest(secret, data, f"sha{size}"),
            )
            yield Case(f"HS{size} with the public key ({what}) as the secret", made, INVALID)
        made = jws(claims(), sign=lambda data, secret=secret: hmac.digest(secret, data, "sha512"))
        yield Case(f"an HMAC with the public key ({what}) called EdDSA", made, INVALID)
    others = {
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "RS256": rsa.generate_private_key(65537, 2048),
        "EdDSA": ed448.Ed448PrivateKey.generate(),
    }
    for alg, key in others.items():
        made = jwt.PyJWS().encode(json.dumps(claims()).encode(), key, alg, dict(HEADER, alg=alg))
        yield Case(f"really {alg}, of another kind of key", f"hntoken://v1/{made}", INVALID)
    for name in ("alg", "typ", "v"):
        yield Case(f"no {name}", token(header={key: value for key, value in HEADER.items() if key != name}), INVALID)
    for typ in ("JWT", "jwt", "HNTOKEN", "hntoken+jwt", "", None, 1, ["hntoken"], "hntoken\0"):
        yield Case(f"typ {typ!r}", token(header=HEADER | {"typ": typ}), INVALID)
    for version in (0, 2, -1, "1", 1.0, 1.5, True, None, [1]):
        yield Case(f"v {version!r}", token(header=HEADER | {"v": version}), INVALID)
    key = {"kty": "OKP", "crv": "Ed25519", "x": MALLORY.node_id.partition(":")[2]}
    extra: dict[str, Any] = {
        "kid": "1",
        "jku": "https://evil.example/keys",
        "jwk": key,
        "x5u": "https://evil.example",
        "x5c": ["A"],
    }
    extra |= {"crit": ["exp"], "b64": False, "zip": "DEF", "cty": "JWT", "nonce": "1", "x5t": "A", "ALG": "none", "": ""}
    for name, value in extra.items():
        yield Case(f"header {name}, signed by the issuer", token(header=HEADER | {name: value}), INVALID)
        yield Case(f"header {name}, signed by another", token(MALLORY, header=HEADER | {name: value}), INVALID)
    for crit in ([], ["b64"], ["v"], "exp", None, [1]):
        yield Case(f"crit {crit!r}", token(header=HEADER | {"crit": crit}), INVALID)
    yield Case("kid that is a path", token(header=HEADER | {"kid": "../../dev/null"}), INVALID)


def wrong_claims() -> Iterator[Case]:
    """Claims of wrong types and sizes, correctly signed."""
    for name in ("iss", "sub", "aud", "jti"):
        for value in (..., None, 1, True, [], {}, "", "x" * 129, "a\0b", "a\u202eb", "\ud800", [NODE.node_id]):
            yield Case(f"{name} {value!r}", token(**{name: value}), BAD)
    numbers = (..., None, str(NOW + 600), NOW + 600.5, float(NOW + 600), True, False, -1, 2**53, 10**30, 1e300, [], {})
    for name in ("iat", "nbf", "exp"):
        for value in numbers:
            if not (name == "nbf" and value is ...):
                yield Case(f"{name} {value!r}", token(**{name: value}), BAD)
        for literal in ("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "0x6AB0", "1_790_000_000", "01790000000", '"NaN"'):
            text = json.dumps(claims(**{name: "HERE"})).replace('"HERE"', literal)
            yield Case(f"{name} {literal}", jws(text.encode()), BAD)
    for value in (..., None, "rag.query@1.0", ["rag.query@1.0"], [], {}, 1, True, {"capabilities": None}):
        yield Case(f"scope {value!r}", token(scope=value), BAD)
    listed: list[Any] = ["rag.query@1.0", [], {}, [1], [None], [["rag.query@1.0"]], [""], ["*"], ["rag.query"], ["rag.query@1"]]
    listed += [["rag.*@1.0"], ["*@1.0"], ["rag.query@*"], ["rag.query@>=1.0"], ["rag.query@01.0"], ["rag.query@1.0 "], ["@1.0"]]
    listed += [
        ["rag.query@1.0@1.0"],
        ["rag.query@-1.0"],
        ["rag.query@1.0.0"],
        ["rag.query@１.0"],
        ["rag.query@1e0.0"],
        ["rag@1.0"],
    ]
    for value in listed:
        yield Case(f"capabilities {value!r}", token(scope=scope(capabilities=value)), BAD)
    for value in ([], "corpus", 1, {"corpus": "village"}, {"corpus": None}, {"corpus": {"village": 1}}, {"corpus": ["\ud800"]}):
        yield Case(f"params_constraints {value!r}", token(scope=scope(params_constraints=value)), BAD)
    for name in ("rate_limit_per_minute", "max_calls_total"):
        for value in (0, -1, 1.5, 10.0, "10", True, False, 2**53, [], {}):
            yield Case(f"{name} {value!r}", token(scope=scope(**{name: value})), BAD)
    for name in ("max_calls", "exclude", "capabilites", "Capabilities", "", "not_before"):
        yield Case(f"a bound that nobody knows: {name!r}", token(scope=scope(**{name: 1})), BAD)
    for value in (1, True, [], {}, "", "x", "hntoken://v1/", "hntoken://v1/..", [token()]):
        yield Case(f"parent {value!r}"[:60], token(parent=value), BAD)


def _flipped(text: str, place: int) -> str:
    head, _, last = text.rpartition(".")
    raw = bytearray(_decode(last))
    raw[place] ^= 1
    return f"{head}.{encode(bytes(raw))}"


def _decode(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group of Ed25519
P = 2**255 - 19


def keys() -> Iterator[Case]:
    """Tokens that the operator has not signed as they stand."""
    for signer in (ALICE, NODE, MODEL, STRANGER, MALLORY):
        yield Case(f"signed by {signer.node_id[:12]} as the operator", token(signer), INVALID)
        yield Case(f"issued by {signer.node_id[:12]}", token(signer, iss=signer.node_id), INVALID)
    for place in range(0, 64, 4):
        yield Case(f"a bit flipped in byte {place} of the signature", _flipped(token(), place), INVALID)
    first = token(scope=scope(capabilities=["rag.list_corpora@1.0"]))
    changed = {"sub": MALLORY.node_id, "aud": COMMUNITY, "exp": NOW + 9999, "nbf": 0, "iat": 1, "jti": "fresh", "scope": scope()}
    for name, value in changed.items():
        payload = json.dumps(claims(scope=scope(capabilities=["rag.list_corpora@1.0"])) | {name: value}).encode()
        header, _, signature = _parts(first)
        yield Case(f"{name} changed after signing", f"hntoken://v1/{header}.{encode(payload)}.{signature}", INVALID)
    spaced = encode(json.dumps(claims(), indent=1).encode())
    header, _, signature = _parts(token())
    yield Case("the same claims written otherwise", f"hntoken://v1/{header}.{spaced}.{signature}", INVALID)
    reordered = encode(json.dumps(dict(reversed(HEADER.items()))).encode())
    yield Case("the same header written otherwise", f"hntoken://v1/{reordered}.{_parts(token())[1]}.{signature}", INVALID)
    for spelling in (OPERATOR.node_id + "=", OPERATOR.node_id.upper(), "ED25519" + OPERATOR.node_id[7:], OPERATOR.node_id[8:]):
        yield Case(f"issuer spelled {spelling[:12]}…{spelling[-2:]}", token(iss=spelling), INVALID)
    for size in (1, 31, 33, 64):
        yield Case(f"an issuer whose key has {size} bytes", token(iss=f"ed25519:{encode(bytes(size))}"), INVALID)
    yield Case("issuer is the community's name", token(iss=COMMUNITY), INVALID)
    raw = _decode(_parts(token())[2])
    second = raw[:32] + (int.from_bytes(raw[32:], "little") + _ORDER).to_bytes(32, "little")
    yield Case("the other form of the same signature", jws(claims(), sign=lambda data: second), INVALID)
    for what, made in {"zeros": bytes(64), "ones": b"\xff" * 64, "the identity": b"\1" + bytes(63)}.items():
        yield Case(f"a signature of {what}", jws(claims(), sign=lambda data, made=made: made), INVALID)


def times() -> Iterator[Case]:
    for exp in (NOW, NOW - 1, NOW - 30, NOW - 86_400, 0, 1):
        yield Case(f"expires at {exp - NOW:+d}", token(exp=exp, iat=min(exp, NOW), nbf=min(exp, NOW)), EXPIRED)
    for name in ("nbf", "iat"):
        for start in (NOW + 31, NOW + 599, NOW + 10**9):
            changes = {name: start, "exp": start + 60}
            code = INVALID if name == "nbf" and start + 60 - NOW > 86_400 else EXPIRED
            yield Case(f"{name} at {start - NOW:+d}", token(**changes), code)
    for seconds in (86_401, 10**6, 2**53 - 1 - NOW):
        yield Case(f"valid for {seconds} s", token(exp=NOW + seconds), INVALID)
    yield Case("valid for long, since 1970", token(iat=0, nbf=0), INVALID)
    yield Case("passed on by one that has expired", passed_on(parent={"exp": NOW - 1}, exp=NOW - 1), EXPIRED, MODEL)
    yield Case("passed on before it is valid", passed_on(parent={"nbf": NOW + 31}), EXPIRED, MODEL)
    yield Case("passed on, itself expired", passed_on(exp=NOW), EXPIRED, MODEL)


def audiences() -> Iterator[Case]:
    for aud in (
        OTHER_NODE.node_id,
        ALICE.node_id,
        OPERATOR.node_id,
        "city",
        "*",
        "Village",
        "village ",
        "village.",
        "vil\u200blage",
    ):
        # what cannot be printed is malformed
        yield Case(f"for {aud[:14]!r}", token(aud=aud), BAD if not aud.isprintable() else AUDIENCE)
    for aud in (
        "νillage",
        "ｖillage",
        "villag\u0435",
        NODE.node_id + "=",
        NODE.node_id.upper(),
        NODE.node_id[8:],
        "none",
        "null",
    ):
        yield Case(f"for {aud[:14]!r}", token(aud=aud), AUDIENCE)
    yield Case("passed on to another node", passed_on(aud=OTHER_NODE.node_id), AUDIENCE, MODEL)


def presenters() -> Iterator[Case]:
    for sender in (MALLORY, STRANGER, MODEL, FRIEND, OPERATOR, NODE):
        yield Case(f"alice's, sent by {sender.node_id[:12]}", token(), SIGNATURE, sender)
    for sub in (
        ALICE.node_id + "=",
        ALICE.node_id.upper(),
        ALICE.node_id.swapcase(),
        ALICE.node_id[8:],
        "alice",
        "**",
        "* ",
        "＊",
    ):
        yield Case(f"for {sub[:14]!r}", token(sub=sub), SIGNATURE)
    yield Case("for anybody", token(sub="*"), AUDIENCE)
    yield Case("for anybody, sent by a stranger", token(sub="*"), AUDIENCE, STRANGER)
    yield Case("passed on, sent by the first subject", passed_on(), SIGNATURE, ALICE)
    yield Case("passed on, sent by somebody else", passed_on(), SIGNATURE, MALLORY)


LOOKALIKES = [
    "Rag.query",
    "RAG.QUERY",
    "rag.Query",
    "rag .query",
    "rag.query ",
    " rag.query",
    "rag.query\0",
    "rag.query\n",
    "rag\u200b.query",
]
LOOKALIKES += [
    "rag.qu\u0435ry",
    "r\u0430g.query",
    "ｒａｇ.ｑｕｅｒｙ",
    "rag．query",
    "rag。query",
    "rag․query",
    "rag..query",
    ".rag.query",
]
LOOKALIKES += [
    "rag.query.",
    "rag/query",
    "rag-query",
    "rag.query\u0301",
    "ra\u0261.query",
    "rag.query\u00ad",
    "rag.\u202equery",
    "𝗋ag.query",
]


def scopes() -> Iterator[Case]:
    for name in ("rag.list_corpora", "rag.quer", "rag.query2", "rag.query.all", "rag.query_all", "llm.chat", "auth.token.issue"):
        yield Case(f"for {name}", token(scope=scope(capabilities=[f"{name}@1.0"])), SCOPE_CODE)
    for version in ("1.3", "2.0", "2.2", "0.2", "0.0", "10.2", "99999.0"):
        yield Case(f"for version {version}", token(scope=scope(capabilities=[f"rag.query@{version}"])), SCOPE_CODE)
    for name in LOOKALIKES:
        yield Case(f"for {name!r}", token(scope=scope(capabilities=[f"{name}@1.0"])), BAD)
    values: list[tuple[list[Any], Any, bool]] = [
        (["village"], "village", True),
        (["city", "village"], "village", True),
        ([1], 1.0, True),
        ([1.0], 1, True),
        ([True], True, True),
        ([None], None, True),
        ([["a", 1]], ["a", 1.0], True),
        ([{"a": 1, "b": 2}], {"b": 2, "a": 1}, True),
        (["é"], "é", True),
        ([0], -0.0, True),
        ([1], True, False),
        ([True], 1, False),
        ([0], False, False),
        ([False], 0, False),
        ([""], None, False),
        ([None], "", False),
        ([None], ..., False),
        ([0], None, False),
        ([1], "1", False),
        (["1"], 1, False),
        (["true"], True, False),
        ([1], [1], False),
        ([[1]], 1, False),
        ([[1]], [True], False),
        ([{"a": 1}], {"a": 1, "b": 2}, False),
        ([{"a": 1}], {"a": True}, False),
        ([["a", "b"]], ["b", "a"], False),
        ([1], 1.0000000000000002, False),
        ([9007199254740992], 9007199254740993, False),
        (["village"], "Village", False),
        (["village"], "village ", False),
        (["village"], "village\0", False),
        (["village"], "ｖillage", False),
        (["village"], "vill\u0430ge", False),
        (["village"], "vil\u00adlage", False),
        (["village"], ["village"], False),
        (["village"], ["village", "secret"], False),
        (["village"], {"village": 1}, False),
        (["village"], ..., False),
        (["é"], "e\u0301", False),
        (["ﬁ"], "fi", False),
        ([], "village", False),
        ([], ..., False),
    ]
    for allowed, sent, passes in values:
        params = {} if sent is ... else {"corpus": sent}
        what = f"allowed {allowed!r}, given {'nothing' if sent is ... else repr(sent)}"
        text = token(scope=scope(params_constraints={"corpus": allowed}))
        yield Case(what, text, "" if passes else SCOPE_CODE, params=params)
    both = token(scope=scope(params_constraints={"corpus": ["village"], "backend": ["a"]}))
    yield Case("one of two constraints", both, SCOPE_CODE)
    yield Case("both constraints", both, "", params={"corpus": "village", "backend": "a"})
    yield Case("more params than constraints", both, "", params={"corpus": "village", "backend": "a", "more": 1})
    constrained = token(scope=scope(params_constraints={"corpus": ["village"]}))
    for params in (None, [], ["corpus"], "corpus", 1, {"Corpus": "village"}, {"corpus ": "village"}, {"corpus\0": "village"}):
        yield Case(f"params {params!r}", constrained, SCOPE_CODE, params=params)


def chains() -> Iterator[Case]:
    """Tokens that are made from others by the wrong node, or allow more."""
    limits = SCOPE["params_constraints"]
    wider: dict[str, dict[str, Any]] = {
        "another capability": {"capabilities": [*SCOPE["capabilities"], "llm.chat@2.0"]},
        "an earlier minor version": {"capabilities": ["rag.query@1.0"]},
        "another major version": {"capabilities": ["rag.query@2.1"]},
        "a longer name": {"capabilities": ["rag.query.all@1.1"]},
        "no constraint": {"params_constraints": {}},
        "null as the constraint": {"params_constraints": None},
        "another value": {"params_constraints": {"corpus": [*limits["corpus"], "secret"]}},
        "only another value": {"params_constraints": {"corpus": ["secret"]}},
        "true for 1": {"params_constraints": {"corpus": [True]}},
        "another parameter constrained instead": {"params_constraints": {"backend": ["a"]}},
        "a higher rate": {"rate_limit_per_minute": 11},
        "no rate": {"rate_limit_per_minute": None},
        "a larger budget": {"max_calls_total": 101},
        "no budget": {"max_calls_total": None},
    }
    for what, changes in wider.items():
        yield Case(f"passed on with {what}", passed_on(scope=SCOPE | changes), INVALID, MODEL)
    for seconds in (1, 60, 80_000):
        yield Case(f"passed on for {seconds} s longer", passed_on(exp=NOW + 600 + seconds), INVALID, MODEL)
    empty = token(aud=MODEL.node_id, scope=scope(params_constraints={"corpus": []}))
    yield Case("passed on with a value where none is allowed", passed_on(parent=empty), INVALID, MODEL)
    for maker in (MALLORY, STRANGER, NODE, OPERATOR, FRIEND):
        yield Case(f"passed on by {maker.node_id[:12]}", passed_on(maker, iss=maker.node_id, sub=maker.node_id), INVALID, maker)
        yield Case(f"passed on by {maker.node_id[:12]} in the model's name", passed_on(maker), INVALID, MODEL)
        same = token(sub=MODEL.node_id, aud=COMMUNITY, scope=SCOPE, jti="root")
        made = passed_on(maker, parent=same, iss=maker.node_id, sub=maker.node_id, aud=COMMUNITY)
        yield Case(f"made by {maker.node_id[:12]} for the same audience", made, INVALID, maker)
    yield Case("passed on by nobody in particular", passed_on(iss="*"), INVALID, MODEL)
    shared = token(aud=COMMUNITY, jti="root")
    for maker in (MODEL, NODE, FRIEND):
        made = jws(claims(iss=maker.node_id, sub=maker.node_id, parent=shared), maker)
        yield Case(f"a community's, passed on by its node {maker.node_id[:12]}", made, INVALID, maker)
    yield Case(
        "anybody's, passed on by somebody",
        jws(claims(iss=MALLORY.node_id, sub=MALLORY.node_id, parent=token(sub="*", jti="root")), MALLORY),
        INVALID,
        MALLORY,
    )
    for aud in (OTHER_NODE.node_id, "city", MODEL.node_id):
        elsewhere = token(aud=aud, jti="root")
        made = jws(claims(iss=ALICE.node_id, parent=elsewhere), ALICE)
        yield Case(f"for {aud[:12]}, addressed anew by its subject", made, INVALID)
    own = jws(claims(iss=ALICE.node_id, aud=ALICE.node_id, jti="own", parent=token(aud="city", jti="root")), ALICE)
    yield Case("addressed to oneself, and then here", jws(claims(iss=ALICE.node_id, parent=own), ALICE), INVALID)
    root = {"aud": MODEL.node_id, "scope": SCOPE, "jti": "root"}
    foreign = token(MALLORY, iss=MALLORY.node_id, **root)
    yield Case("made from a token of an issuer nobody trusts", passed_on(parent=foreign), INVALID, MODEL)
    yield Case("made from one that another has signed", passed_on(parent=token(MALLORY, **root)), INVALID, MODEL)
    yield Case("made from a token that was not signed", passed_on(parent=_flipped(token(**root), 3)), INVALID, MODEL)
    unsigned = jws(claims(**root), header=HEADER | {"alg": "none"}, sign=lambda data: b"")
    yield Case("made from a token with another header", passed_on(parent=unsigned), INVALID, MODEL)
    yield Case("made from half a token", passed_on(parent=token(**root)[:-9]), BAD, MODEL)
    middle = claims(iss=MODEL.node_id, sub=MODEL.node_id, aud=MODEL.node_id, scope=SCOPE, jti="middle", parent=token(**root))
    yield Case("a link in the middle", passed_on(parent=jws(middle, MODEL)), "", MODEL)
    yield Case("a link in the middle that another has signed", passed_on(parent=jws(middle, MALLORY)), INVALID, MODEL)
    city = SCOPE | {"params_constraints": {"corpus": ["city"]}}
    yield Case("narrowed to another corpus", passed_on(scope=city), SCOPE_CODE, MODEL)
    yield Case(
        "narrowed to another corpus in the middle",
        passed_on(parent=jws(middle | {"scope": city}, MODEL), scope=city),
        SCOPE_CODE,
        MODEL,
    )
    listing = SCOPE | {"capabilities": ["rag.list_corpora@1.0"]}
    yield Case("narrowed to another capability", passed_on(scope=listing), SCOPE_CODE, MODEL)
    yield Case("made from a token for somebody else", passed_on(parent={"aud": OTHER_NODE.node_id}), INVALID, MODEL)
    yield Case("its own root", jws(claims(iss=MODEL.node_id, sub=MODEL.node_id), MODEL), INVALID, MODEL)
    yield Case("a chain of 5", _chain(5), INVALID, MODEL)
    yield Case("a chain of 6, which is larger than 8 KiB", _chain(6), BAD, MODEL)
    yield Case("larger than 8 KiB", passed_on(scope=SCOPE | {"params_constraints": {"corpus": ["x" * 7000]}}), BAD, MODEL)
    many = [f"rag.c{number}@1.0" for number in range(600)]
    yield Case("600 capabilities", token(scope=scope(capabilities=many)), BAD)


GROUPS = (good, malformed, headers, wrong_claims, keys, times, audiences, presenters, scopes, chains)
CASES = [pytest.param(case, id=f"{group.__name__}: {case.what}") for group in GROUPS for case in group()]


@pytest.mark.req("R97")
@pytest.mark.parametrize("case", CASES)
async def test_a_token(case: Case) -> None:
    world = World()
    for _ in range(2 if case.code else 1):  # what was refused is refused again: no cache makes it good
        assert await world.send(case.token, case.sender, body={"params": case.params, "input": {}}) == case.code
    assert len(world.ran) == (0 if case.code else 1)


def test_there_are_enough_of_them() -> None:
    hostile = {(case.token, case.sender.node_id, str(case.params)) for (case,) in (param.values for param in CASES) if case.code}
    assert len(hostile) >= 300


@pytest.mark.parametrize("text", [token(), passed_on()], ids=["issued", "passed on"])
def test_no_token_survives_the_change_of_a_single_character(text: str) -> None:
    """Every character removed, doubled, swapped with the next, or replaced."""
    verifier = World().verifier
    presenter = read_token(text).sub
    assert verifier.verify(text, presenter)
    for place, letter in enumerate(text):
        changed = {text[:place] + text[place + 1 :], text[:place] + letter + text[place:]}
        changed |= {text[:place] + text[place : place + 2][::-1] + text[place + 2 :]}
        changed |= {text[:place] + other + text[place + 1 :] for other in "Ae."}
        for one in changed - {text}:
            with pytest.raises(BusError) as refused:
                verifier.verify(one, presenter)
            assert refused.value.code in (BAD, INVALID)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*claims(), *SCOPE]) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.generated
@given(JSON, st.dictionaries(st.sampled_from([*claims(), *SCOPE, "parent"]), JSON, max_size=3))
def test_whatever_is_signed_is_a_token_or_an_error_of_the_bus(payload: Any, changes: dict[str, Any]) -> None:
    for text in (jws(payload), jws(claims() | changes), jws(claims(scope=claims()["scope"] | changes))):
        with suppress(BusError):
            World().verifier.verify(text, ALICE.node_id).check("rag.query", (1, 2), {"corpus": payload})


@pytest.mark.parametrize("name", LOOKALIKES)
async def test_a_name_that_looks_like_the_capability_is_none(name: str) -> None:
    world = World()
    assert await world.send(token(), capability=name) == BAD
    assert not world.ran


def _weak_keys() -> list[bytes]:
    """All encodings of points of small order, and second spellings of some."""
    eighth = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    ys = [0, 1, P - 1, eighth, P - eighth, P, P + 1]
    return [(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)]


@pytest.mark.parametrize("raw", _weak_keys(), ids=bytes.hex)
async def test_a_weak_key_signs_nothing(raw: bytes) -> None:
    weak, made = f"ed25519:{encode(raw)}", b"\1" + bytes(63)
    world = World(issuers={weak: "anchor"})  # even where the operator has been talked into it
    assert await world.send(jws(claims(iss=weak), sign=lambda data: made)) == INVALID
    sent = envelope(weak)
    assert await world.receive(sent, f"ed25519:{encode(made)}") == SIGNATURE
    assert not world.ran


def test_such_signatures_would_be_valid_were_it_not_for_the_check_of_the_key() -> None:
    Ed25519PublicKey.from_public_bytes((1).to_bytes(32, "little")).verify(b"\1" + bytes(63), b"whatever")


async def test_a_token_for_anybody_counts_where_the_operator_wants_it() -> None:
    world = World(bearer=True)
    assert await world.receive(envelope(STRANGER, token=token(sub="*"))) == ""  # nobody has signed it
    assert await world.send(token(sub="*"), MALLORY) == ""
    assert await world.receive(envelope(ALICE, token=token())) == SIGNATURE  # a token for somebody still needs a signature
    assert [one.subject for one in world.authorities] == [OPERATOR.node_id] * 2


async def test_an_expired_token_is_refused_also_after_it_was_good() -> None:
    world = World()
    assert await world.send(token()) == ""
    world.clock.now = NOW + 599.9
    assert await world.send(token(), timestamp=world.clock.now) == ""
    world.clock.now = NOW + 600
    assert await world.send(token(), timestamp=world.clock.now) == EXPIRED
    assert len(world.ran) == 2


@pytest.mark.parametrize(
    ("kind", "id", "code"),
    [
        ("token", "root", "token_revoked"),
        ("token", "child", "token_revoked"),
        ("issuer", OPERATOR.node_id, "revoked"),
        ("issuer", MODEL.node_id, "revoked"),
    ],
)
@pytest.mark.req("R219")
async def test_what_is_revoked_ends_at_once_whichever_link_it_is(kind: Any, id: str, code: str) -> None:
    world = World()
    assert await world.send(passed_on(), MODEL) == ""
    world.revocations.revoke(kind, id)
    assert await world.send(passed_on(), MODEL) == code
    world.revocations.revoke("token", "somebody else's")
    assert await world.send(token(jti="another", iss=OPERATOR.node_id)) == ("revoked" if id == OPERATOR.node_id else "")
    assert len(world.ran) == (1 if id == OPERATOR.node_id else 2)


async def test_a_call_that_waits_is_not_begun_with_a_token_that_was_revoked_meanwhile() -> None:
    """Between the check of the sender and the call itself there is time."""
    world = World()
    verified = world.verifier.verify(token(), ALICE.node_id)
    world.revocations.revoke("token", claims()["jti"])
    with pytest.raises(Exception, match="revoked"):
        verified.check("rag.query", (1, 2), {})


@pytest.mark.req("R219")
async def test_authority_is_that_of_the_whole_chain() -> None:
    world = World(issuers={OPERATOR.node_id: "trusted"}, nodes={MODEL.node_id: "anchor"})
    assert await world.send(passed_on(), MODEL) == ""
    (authority,) = world.authorities
    assert (authority.subject, authority.via, authority.trust) == (ALICE.node_id, (MODEL.node_id,), "trusted")


@pytest.mark.req("R219")
@pytest.mark.parametrize(
    ("issuer", "nodes", "code"),
    [
        ("member", {}, ""),
        ("anchor", {ALICE: "member", MODEL: "trusted"}, ""),
        ("anchor", {ALICE: "unknown", MODEL: "anchor"}, AUDIENCE),
        ("anchor", {ALICE: "anchor", MODEL: "unknown"}, AUDIENCE),
        ("unknown", {ALICE: "anchor", MODEL: "anchor"}, AUDIENCE),
    ],
)
async def test_no_link_is_trusted_further_than_the_least(issuer: str, nodes: dict[Any, str], code: str) -> None:
    world = World(issuers={OPERATOR.node_id: issuer}, nodes={node.node_id: trust for node, trust in nodes.items()})
    assert await world.send(passed_on(), MODEL) == code
    assert len(world.ran) == (not code)
