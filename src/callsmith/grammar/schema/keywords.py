"""The keywords of JSON Schema, grouped by what they apply to."""

from callsmith.core.schema import GRAMMAR

NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format", GRAMMAR)
ARRAY_KEYWORDS = frozenset(
    {
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "unevaluatedItems",
    }
)  # fmt: skip
OBJECT_KEYWORDS = frozenset(
    {
        "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames",
        "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
    }
)  # fmt: skip
KEYWORDS_BY_TYPE = {
    "number": frozenset(NUMBER_KEYWORDS),
    "string": frozenset(STRING_KEYWORDS),
    "array": ARRAY_KEYWORDS,
    "object": OBJECT_KEYWORDS,
}
UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
EVALUATING = frozenset({"if", "dependentSchemas", "contains", "$dynamicRef", "$recursiveRef", "$ref"})  # depending on the value
EXTERNAL_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef", "$ref"})  # a `$ref` only where it leads out of the document
LOGIC_KEYWORDS = frozenset({"type", "enum", "const", "anyOf", "oneOf", "not", "if", "then", "else"})
CONTENT_KEYWORDS = frozenset({"contentEncoding", "contentMediaType"})  # which drafts 6 and 7 assert, and none after them
# The keywords that can make a value invalid.
ASSERTIONS = (
    LOGIC_KEYWORDS | CONTENT_KEYWORDS | EXTERNAL_REFERENCES - {"$ref"} | frozenset[str]().union(*KEYWORDS_BY_TYPE.values())
)
MORE_THAN_TYPE = ASSERTIONS - {"type"} | {"$ref", "allOf"}
