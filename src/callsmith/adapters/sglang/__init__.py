"""callsmith inside SGLang: `--tool-call-parser callsmith --reasoning-parser callsmith`."""
