"""The keywords of JSON Schema, by what they are about."""

OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
OF_STRINGS = ("minLength", "maxLength", "pattern", "format")
OF_ARRAYS = frozenset(
    {
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "unevaluatedItems",
    }
)  # fmt: skip
OF_OBJECTS = frozenset(
    {
        "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames",
        "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
    }
)  # fmt: skip
SHAPES = {"number": frozenset(OF_NUMBERS), "string": frozenset(OF_STRINGS), "array": OF_ARRAYS, "object": OF_OBJECTS}
UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
ELSEWHERE = frozenset({"$dynamicRef", "$recursiveRef", "$ref"})  # a `$ref` only where it leads out of the document
LOGIC = frozenset({"type", "enum", "const", "anyOf", "oneOf", "not", "if", "then", "else"})
CONTENT = frozenset({"contentEncoding", "contentMediaType"})  # which drafts 6 and 7 assert, and none after them
ASSERTING = LOGIC | CONTENT | ELSEWHERE - {"$ref"} | frozenset[str]().union(*SHAPES.values())
BEYOND_TYPE = ASSERTING - {"type"} | {"$ref", "allOf"}
