"""Hostile tokens, and good ones: how they are written, what is claimed in them, and the keys that sign them.

Each is (what, token, code); "" is the code of those that must pass.
"""

import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa

from tests.attack.bus_world import (
    ALICE,
    BODY,
    COMMUNITY,
    HEADER,
    MALLORY,
    MODEL,
    NODE,
    NOW,
    OPERATOR,
    SCOPE,
    STRANGER,
    claims,
    encode,
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
    yield Case("the longest chain", make_chain(4), "", MODEL)


def make_chain(links: int) -> str:
    """A chain of so many tokens, the last of which is MODEL's for NODE."""
    text = token(aud=MODEL.node_id)
    for number in range(links - 1):
        is_last = number == links - 2
        text = jws(claims(iss=MODEL.node_id, sub=MODEL.node_id, aud=(NODE if is_last else MODEL).node_id, parent=text), MODEL)
    return text


def split_token(text: str) -> list[str]:
    return text.removeprefix("hntoken://v1/").split(".")


def malformed() -> Iterator[Case]:
    """Texts that are no token, or another spelling of one."""
    text, parts = token(), split_token(token())
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
    assert decode_part(split_token(stray)[2]) == decode_part(parts[2])  # the same bytes, in a lenient reading
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
            token_text = jws(
                claims(),
                header=HEADER | {"alg": f"HS{size}"},
                sign=lambda data, secret=secret, size=size: hmac.digest(secret, data, f"sha{size}"),
            )
            yield Case(f"HS{size} with the public key ({what}) as the secret", token_text, INVALID)
        token_text = jws(claims(), sign=lambda data, secret=secret: hmac.digest(secret, data, "sha512"))
        yield Case(f"an HMAC with the public key ({what}) called EdDSA", token_text, INVALID)
    others = {
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "RS256": rsa.generate_private_key(65537, 2048),
        "EdDSA": ed448.Ed448PrivateKey.generate(),
    }
    for alg, key in others.items():
        token_text = jwt.PyJWS().encode(json.dumps(claims()).encode(), key, alg, dict(HEADER, alg=alg))
        yield Case(f"really {alg}, of another kind of key", f"hntoken://v1/{token_text}", INVALID)
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


def flip_character(text: str, place: int) -> str:
    head, _, last = text.rpartition(".")
    raw = bytearray(decode_part(last))
    raw[place] ^= 1
    return f"{head}.{encode(bytes(raw))}"


def decode_part(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group of Ed25519
P = 2**255 - 19


def keys() -> Iterator[Case]:
    """Tokens that the operator has not signed as they stand."""
    for signer in (ALICE, NODE, MODEL, STRANGER, MALLORY):
        yield Case(f"signed by {signer.node_id[:12]} as the operator", token(signer), INVALID)
        yield Case(f"issued by {signer.node_id[:12]}", token(signer, iss=signer.node_id), INVALID)
    for place in range(0, 64, 4):
        yield Case(f"a bit flipped in byte {place} of the signature", flip_character(token(), place), INVALID)
    first = token(scope=scope(capabilities=["rag.list_corpora@1.0"]))
    changed = {"sub": MALLORY.node_id, "aud": COMMUNITY, "exp": NOW + 9999, "nbf": 0, "iat": 1, "jti": "fresh", "scope": scope()}
    for name, value in changed.items():
        payload = json.dumps(claims(scope=scope(capabilities=["rag.list_corpora@1.0"])) | {name: value}).encode()
        header, _, signature = split_token(first)
        yield Case(f"{name} changed after signing", f"hntoken://v1/{header}.{encode(payload)}.{signature}", INVALID)
    spaced = encode(json.dumps(claims(), indent=1).encode())
    header, _, signature = split_token(token())
    yield Case("the same claims written otherwise", f"hntoken://v1/{header}.{spaced}.{signature}", INVALID)
    reordered = encode(json.dumps(dict(reversed(HEADER.items()))).encode())
    yield Case("the same header written otherwise", f"hntoken://v1/{reordered}.{split_token(token())[1]}.{signature}", INVALID)
    for spelling in (OPERATOR.node_id + "=", OPERATOR.node_id.upper(), "ED25519" + OPERATOR.node_id[7:], OPERATOR.node_id[8:]):
        yield Case(f"issuer spelled {spelling[:12]}…{spelling[-2:]}", token(iss=spelling), INVALID)
    for size in (1, 31, 33, 64):
        yield Case(f"an issuer whose key has {size} bytes", token(iss=f"ed25519:{encode(bytes(size))}"), INVALID)
    yield Case("issuer is the community's name", token(iss=COMMUNITY), INVALID)
    raw = decode_part(split_token(token())[2])
    second = raw[:32] + (int.from_bytes(raw[32:], "little") + _ORDER).to_bytes(32, "little")
    yield Case("the other form of the same signature", jws(claims(), sign=lambda data: second), INVALID)
    for what, forged in {"zeros": bytes(64), "ones": b"\xff" * 64, "the identity": b"\1" + bytes(63)}.items():
        yield Case(f"a signature of {what}", jws(claims(), sign=lambda data, forged=forged: forged), INVALID)
