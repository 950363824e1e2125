"""Models answer requests as events: local ones through an engine, with weights from a catalogue.

model = open_model("qwen2.5-coder-1.5b")        # a name of the catalogue
model = open_model("/models/some.gguf")         # any GGUF file; its format is found out from its chat template
"""

from callsmith.models.opening import Options, describe_model, open_model

__all__ = ["Options", "describe_model", "open_model"]
