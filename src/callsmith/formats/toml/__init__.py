"""A `Format` as a TOML file, and back: a new model family without any code.

    name = "qwen3-coder"

    [[parts]]
    kind = "thinks"
    open = "<think>\\n"
    close = "\\n</think>\\n\\n"

    [[parts]]
    kind = "calls"
    item = [
        {opt = "<tool_call>\\n"},
        "<function={name}>\\n",
        {each = "<parameter={key}>\\n{value}\\n</parameter>\\n"},
        "</function>",
        {opt = "\\n</tool_call>"},
    ]
    between = "\\n"
    values = "raw"

Nodes are a string or a list of strings and tables. In a string `{name}`, `{id}`, `{index}`, `{args}`, `{key}`, `{type}`,
`{value}` and `{skip}` are holes and all else is literal; `{{name}}` is the literal `{name}`. The tables are `{any = [...]}`,
`{opt = ..., write = false}`, `{each = ..., between = ", "}`, `{object = {name = "{name}", arguments = "{args}"}}` and
`{ident = ...}`. `values` is "json", "python" or "raw", or a table with a `kind` and the fields of that spelling.
"""
