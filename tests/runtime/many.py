"""Three hundred tools of several sources, as a user of many servers has them."""

from callsmith.core.values import Tool

VERBS = {
    "list": "Lists all {}s that match a filter.",
    "get": "Gets one {} with all its details.",
    "create": "Creates a new {}.",
    "update": "Changes the fields of an existing {}.",
    "delete": "Deletes a {} for good.",
    "archive": "Moves a {} to the archive.",
    "export": "Writes a {} to a file that can be downloaded.",
    "share": "Shares a {} with another person.",
    "comment_on": "Adds a comment to a {}.",
    "subscribe_to": "Tells the user from now on when a {} changes.",
}
NOUNS = {
    "github": ("issue", "pull_request", "repository", "release", "milestone", "workflow"),
    "calendar": ("event", "reminder", "availability", "invitation", "room", "holiday"),
    "files": ("folder", "document", "spreadsheet", "presentation", "photo", "backup"),
    "shop": ("order", "invoice", "customer", "product", "coupon", "shipment"),
    "mail": ("message", "draft", "label", "contact", "signature", "mailing_list"),
}


def tool(verb: str, noun: str, source: str) -> Tool:
    properties = {
        f"{noun}_id": {"type": "string", "description": f"Which {noun}: its identifier, as a list of {noun}s gives it."},
        "note": {"type": "string", "description": "A remark for the log that is kept of all changes."},
    }
    parameters = {"type": "object", "properties": properties, "required": [f"{noun}_id"]}
    return Tool(f"{verb}_{noun}", VERBS[verb].format(noun.replace("_", " ")), parameters, source=source)


CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}, "required": ["city"]}
WEATHER = Tool("current_weather", "Tells the weather in a city: temperature, wind and rain.", CITY, source="weather")
MANY = (*[tool(verb, noun, source) for verb in VERBS for source, nouns in NOUNS.items() for noun in nouns][:299], WEATHER)
