"""Forms made of schemas: what nobody has changed is sent as it was given, and shown as it is."""

from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions, tool
from tests.browser.pages import opened, say
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import served

pytestmark = pytest.mark.browser


FILLED = """async ([schema, value, type]) => {
  const { schemaForm } = await import("/page/form.js");
  const { parse } = await import("/page/json.js");
  const form = schemaForm(schema, parse(value));
  document.body.append(form.element);
  for (const [label, text] of Object.entries(type || {})) {
    const found = [...form.element.querySelectorAll("label")].find((one) => one.textContent.startsWith(label));
    const input = document.getElementById(found.htmlFor);
    input.value = text;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  try { return JSON.stringify(form.read()); } catch (error) { return error.message; } finally { form.element.remove(); }
}"""
NODE = {
    "type": "object",
    "properties": {"value": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}},
    "required": ["value"],
}


def obj(required: list[str] | None = None, **properties: Any) -> Any:
    return {"type": "object", "properties": properties, "required": required or []}


ADDRESS = obj(["street", "zip"], street={"type": "string"}, zip={"type": "integer"})
STREET = obj(["street"], street={"type": "string"})
FORMS: dict[str, Any] = {
    "optional object that was left out": (obj(["item"], item={"type": "string"}, to=ADDRESS), '{"item":"a"}', '{"item":"a"}'),
    "optional object of a text": (obj(["item"], item={"type": "string"}, to=STREET), '{"item":"a"}', '{"item":"a"}'),
    "nullable object": (obj([], to={"anyOf": [STREET, {"type": "null"}], "default": None}), "{}", "{}"),
    "recursion": ({"$defs": {"N": NODE}, "$ref": "#/$defs/N"}, '{"value":"a"}', '{"value":"a"}'),
    "null for a required text": (obj(["a"], a={"anyOf": [{"type": "string"}, {"type": "null"}]}), '{"a":null}', '{"a":null}'),
    "null for a required number": (obj(["a"], a={"type": ["integer", "null"]}), '{"a":null}', '{"a":null}'),
    "null beside a default": (obj([], a={"type": ["integer", "null"], "default": 10}), '{"a":null}', '{"a":null}'),
    "null in an enum": (obj(["a"], a={"enum": ["x", None]}), '{"a":null}', '{"a":null}'),
    "null for a boolean": (obj(["a"], a={"type": ["boolean", "null"]}), '{"a":null}', '{"a":null}'),
    "null for a list": (
        obj(["a"], a={"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
        '{"a":null}',
        '{"a":null}',
    ),
    "null for an object": (obj(["a"], a={"anyOf": [STREET, {"type": "null"}]}), '{"a":null}', '{"a":null}'),
    "time with a zone": (obj(["at"], at={"type": "string", "format": "time"}), '{"at":"10:00:00Z"}', '{"at":"10:00:00Z"}'),
    "date that is none": (obj(["at"], at={"type": "string", "format": "date"}), '{"at":"tomorrow"}', '{"at":"tomorrow"}'),
    "date-time": (
        obj(["at"], at={"type": "string", "format": "date-time"}),
        '{"at":"2026-01-01T10:00:00Z"}',
        '{"at":"2026-01-01T10:00:00Z"}',
    ),
    "email with a space": (obj(["at"], at={"type": "string", "format": "email"}), '{"at":" a@b.c"}', '{"at":" a@b.c"}'),
    "CRLF": (obj(["a"], a={"type": "string"}), '{"a":"x\\r\\ny"}', '{"a":"x\\r\\ny"}'),
    "CR": (obj(["a"], a={"type": "string"}), '{"a":"x\\ry"}', '{"a":"x\\ry"}'),
    "enum of numbers": (obj(["a"], a={"enum": [1, 2.5]}), '{"a":2.5}', '{"a":2.5}'),
    "enum and a float": (obj(["a"], a={"type": "integer", "enum": [1, 2]}), '{"a":2.0}', '{"a":2}'),
    "integer as float": (obj(["a"], a={"type": "integer"}), '{"a":2.0}', '{"a":2}'),
    "tiny number": (obj(["a"], a={"type": "number"}), '{"a":1e-7}', '{"a":1e-7}'),
    "oneOf objects": (obj(["a"], a={"oneOf": [ADDRESS, STREET]}), '{"a":{"street":"x"}}', '{"a":{"street":"x"}}'),
    "string or number": (obj(["a"], a={"anyOf": [{"type": "string"}, {"type": "number"}]}), '{"a":"x"}', '{"a":"x"}'),
    "additional properties": (obj([], a={"type": "string"}), '{"a":"x","b":[1]}', '{"a":"x","b":[1]}'),
    "map": (obj(["m"], m={"type": "object", "additionalProperties": {"type": "string"}}), '{"m":{"x":"y"}}', '{"m":{"x":"y"}}'),
    "objects in a list": (
        obj(["l"], l={"type": "array", "items": ADDRESS}),
        '{"l":[{"street":"a","zip":1},{"street":"b","zip":2}]}',
        '{"l":[{"street":"a","zip":1},{"street":"b","zip":2}]}',
    ),
    "tuple": (
        obj(["l"], l={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}),
        '{"l":["a",1]}',
        '{"l":["a",1]}',
    ),
    "list of nulls": (
        obj(["l"], l={"type": "array", "items": {"type": ["string", "null"]}}),
        '{"l":["a",null]}',
        '{"l":["a",null]}',
    ),
    "large integer": (obj(["id"], id={"type": "integer"}), '{"id":1234567890123456789}', '{"id":1234567890123456789}'),
    "empty text": (obj(["a"], a={"type": "string"}), '{"a":""}', '{"a":""}'),
    "false": (obj([], a={"type": "boolean", "default": True}), '{"a":false}', '{"a":false}'),
    "zero": (obj([], a={"type": "integer", "default": 5}), '{"a":0}', '{"a":0}'),
    "deep": (
        obj(["a"], a=obj(["b"], b=obj(["c"], c=obj(["d"], d={"type": "string"})))),
        '{"a":{"b":{"c":{"d":"x"}}}}',
        '{"a":{"b":{"c":{"d":"x"}}}}',
    ),
    "allOf": (obj(["a"], a={"allOf": [STREET], "description": "x"}), '{"a":{"street":"x"}}', '{"a":{"street":"x"}}'),
    "long text in maxLength": (obj(["a"], a={"type": "string", "maxLength": 2}), '{"a":"xyz"}', '{"a":"xyz"}'),
}


async def test_what_nobody_has_changed_is_sent_as_it_was_given():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        wrong = []
        for name, (schema, value, wanted) in FORMS.items():
            read = await page.evaluate(FILLED, [schema, value, {}])
            if read != wanted:
                wrong.append(f"{name}: wanted {wanted}, got {read}")
        assert not wrong


async def test_a_form_that_nothing_was_given_to_has_its_defaults_and_asks_for_what_is_required():
    fields = {"days": {"type": "integer"}, "size": {"type": "integer", "default": 7}}
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        assert await page.evaluate(FILLED, [obj([], **fields), "", {}]) == '{"size":7}'
        assert await page.evaluate(FILLED, [obj(["days"], **fields), "", {}]) == "days: is required"
        assert await page.evaluate(FILLED, [obj(["days"], **fields), "", {"days": "3"}]) == '{"days":3,"size":7}'


async def test_large_numbers_are_shown_as_they_are():
    @tool(side_effects=True)
    async def pay(account: int) -> str:
        """Pay."""
        return '{"account": 1234567890123456789, "amount": 1.10}'

    model = FakeModel(calls(Call("pay", {"account": 1234567890123456789}, "c1")), says("Paid."))
    async with served(create_app({"m": model}, tools=Functions(pay))) as url, opened(url) as page:
        await say(page, "Pay.")
        text = await page.get_by_role("region", name="Allow pay?").locator("pre").inner_text()
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("Paid.").wait_for()
        await page.locator(".call summary").click()
        result = await page.locator(".call pre").last.inner_text()
        assert "1234567890123456789" in text
        assert "1234567890123456789" in result
