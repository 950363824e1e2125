"""Tokens that are well written: for when, for whom, for what, and passed on by whom."""

from collections.abc import Iterator
from typing import Any

from tests.attack.bus_token_cases import (
    AUDIENCE,
    BAD,
    EXPIRED,
    INVALID,
    SCOPE_CODE,
    SIGNATURE,
    Case,
    flip_character,
    make_chain,
    scope,
)
from tests.attack.bus_world import (
    ALICE,
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
    claims,
    jws,
    passed_on,
    token,
)


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
        token_text = passed_on(maker, parent=same, iss=maker.node_id, sub=maker.node_id, aud=COMMUNITY)
        yield Case(f"made by {maker.node_id[:12]} for the same audience", token_text, INVALID, maker)
    yield Case("passed on by nobody in particular", passed_on(iss="*"), INVALID, MODEL)
    shared = token(aud=COMMUNITY, jti="root")
    for maker in (MODEL, NODE, FRIEND):
        token_text = jws(claims(iss=maker.node_id, sub=maker.node_id, parent=shared), maker)
        yield Case(f"a community's, passed on by its node {maker.node_id[:12]}", token_text, INVALID, maker)
    yield Case(
        "anybody's, passed on by somebody",
        jws(claims(iss=MALLORY.node_id, sub=MALLORY.node_id, parent=token(sub="*", jti="root")), MALLORY),
        INVALID,
        MALLORY,
    )
    for aud in (OTHER_NODE.node_id, "city", MODEL.node_id):
        elsewhere = token(aud=aud, jti="root")
        token_text = jws(claims(iss=ALICE.node_id, parent=elsewhere), ALICE)
        yield Case(f"for {aud[:12]}, addressed anew by its subject", token_text, INVALID)
    own = jws(claims(iss=ALICE.node_id, aud=ALICE.node_id, jti="own", parent=token(aud="city", jti="root")), ALICE)
    yield Case("addressed to oneself, and then here", jws(claims(iss=ALICE.node_id, parent=own), ALICE), INVALID)
    root = {"aud": MODEL.node_id, "scope": SCOPE, "jti": "root"}
    foreign = token(MALLORY, iss=MALLORY.node_id, **root)
    yield Case("made from a token of an issuer nobody trusts", passed_on(parent=foreign), INVALID, MODEL)
    yield Case("made from one that another has signed", passed_on(parent=token(MALLORY, **root)), INVALID, MODEL)
    yield Case("made from a token that was not signed", passed_on(parent=flip_character(token(**root), 3)), INVALID, MODEL)
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
    yield Case("a chain of 5", make_chain(5), INVALID, MODEL)
    yield Case("a chain of 6, which is larger than 8 KiB", make_chain(6), BAD, MODEL)
    yield Case("larger than 8 KiB", passed_on(scope=SCOPE | {"params_constraints": {"corpus": ["x" * 7000]}}), BAD, MODEL)
    many = [f"rag.c{number}@1.0" for number in range(600)]
    yield Case("600 capabilities", token(scope=scope(capabilities=many)), BAD)
