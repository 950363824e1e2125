"""What engines share that decode in this process: batching, the KV cache's bookkeeping, grammars at work, sampling."""
