"""callsmith inside vLLM: `--tool-call-parser callsmith --reasoning-parser callsmith`."""
