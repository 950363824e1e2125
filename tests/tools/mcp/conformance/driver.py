"""The client the MCP conformance suite tries: our host, and a person who says yes to everything.

The suite gives the server's address as the last argument and the scenario in the environment. Where a scenario does not say which
tools to call, every tool is called once, with arguments made from its schema.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.mcp.auth import Login, TokenFile
from callsmith.tools.mcp.config import OAuth
from callsmith.tools.mcp.connection import Auth
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationReply, ElicitationRequest

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ABOUT_US = "https://conformance-test.local/client-metadata.json"  # the document the suite expects


async def main(url: str) -> int:
    era = "legacy" if VERSION < "2026-07-28" else "auto"
    server = ServerConfig("server", url=url, protocol=era, oauth=oauth() if SCENARIO.startswith("auth/") else None)
    with tempfile.TemporaryDirectory() as folder:
        login = await by_employer(url, Path(folder)) if "idp_id_token" in GIVEN else Login(Path(folder), visit)
        async with McpHost([server], features=ClientFeatures(agree), auth=login) as host:
            tools = await host.tools()
            (status,) = host.status()
            print(status)
            if status.state != "ready":
                return 1
            results = [await called(host, call) for call in wanted(tools)]
    print(*results, sep="\n")
    return 0


def oauth() -> OAuth:
    if SCENARIO.startswith("auth/client-credentials"):
        return OAuth(
            grant="client_credentials",
            client_id=GIVEN["client_id"],
            client_secret=GIVEN.get("client_secret", ""),
            private_key=GIVEN.get("private_key_pem", ""),
            algorithm=GIVEN.get("signing_algorithm", "ES256"),
        )
    return OAuth(
        client_id=GIVEN.get("client_id", ""),
        client_secret=GIVEN.get("client_secret", ""),
        issuer=GIVEN.get("issuer", ""),
        metadata_url=ABOUT_US,
    )


async def by_employer(url: str, folder: Path) -> Auth:
    """A login that an employer vouches for: not ours to configure, but a host can be given any."""
    async with httpx2.AsyncClient() as http:
        about = await http.get(urljoin(url, "/.well-known/oauth-protected-resource/mcp"))
    issuer = str(about.json()["authorization_servers"][0])

    async def vouched(audience: str, resource: str) -> str:
        kinds = "urn:ietf:params:oauth:token-type"
        body = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": f"{kinds}:id-jag",
            "subject_token": GIVEN["idp_id_token"],
            "subject_token_type": f"{kinds}:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": GIVEN["idp_client_id"],
        }
        async with httpx2.AsyncClient() as http:
            return (await http.post(GIVEN["idp_token_endpoint"], data=body)).json()["access_token"]

    provider = IdentityAssertionOAuthProvider(
        url,
        TokenFile(folder / "kept.json", url),
        GIVEN["client_id"],
        GIVEN["client_secret"],
        issuer,
        vouched,
        token_endpoint_auth_method="client_secret_basic",
    )
    return lambda config: provider


async def visit(server: str, url: str) -> None:
    """What a person does with a browser: opens the page, and is sent back to us."""
    async with httpx2.AsyncClient() as browser:
        sent = await browser.get(url)
        back = sent.headers["location"]
        assert "code" in parse_qs(urlsplit(back).query), back
        await browser.get(back)


async def agree(question: ElicitationRequest) -> ElicitationReply:
    return ElicitationReply("accept")


def wanted(tools: Any) -> list[Call]:
    if rows := GIVEN.get("toolCalls"):
        return [Call(row["name"], row.get("arguments", {}), f"c{number}") for number, row in enumerate(rows)]
    return [Call(tool.name, arguments(tool, tools[0]), f"c{number}") for number, tool in enumerate(tools)]


def arguments(tool: Tool, first: Tool) -> dict[str, Any]:
    if tool.name == "add_numbers":
        return {"a": 5, "b": 3}
    if tool.name == "json_schema_echo":
        return {"schema": first.parameters}
    properties: dict[str, Any] = tool.parameters.get("properties") or {}  # type: ignore[assignment]
    needed: Any = tool.parameters.get("required") or ()
    samples = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return {name: samples.get(properties.get(name, {}).get("type"), "text") for name in needed}


async def called(host: McpHost, call: Call) -> Result:
    items = [item async for item in host.call(call, Context())]
    assert isinstance(items[-1], Result)
    return items[-1]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(asyncio.run(main(sys.argv[-1])))
