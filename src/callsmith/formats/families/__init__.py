"""One file a family: its formats, each a value. Every `Format` found in these modules is known by its name and aliases."""
