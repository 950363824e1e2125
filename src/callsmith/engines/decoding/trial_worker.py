"""The program of a worker process: compiles the grammars it reads and reports the outcome. Imports llguidance alone,
which it may have to look for where its parent does.

It is started by path, not as a module, and takes one argument, its settings as JSON. A request is a length (four bytes) and so
many bytes of Lark text; a reply is one line of JSON. The end of the input ends the process, even in the middle of a compile.
"""

import json
import os
import sys
import threading
import time
from queue import SimpleQueue
from typing import Any


def limit_memory(most: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: the time limit is all there is
        return
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def compile_all(settings: dict[str, Any], texts: "SimpleQueue[str]") -> None:
    import llguidance

    kind: Any = llguidance.LLTokenizer
    tokenizer = kind("byte", slices=settings["slices"])
    limits = llguidance.LLParserLimits(**settings["limits"], verbose_errors=False)
    print(json.dumps("ready"), flush=True)
    while True:
        lark, begun = texts.get(), time.thread_time()
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(lark), limits=limits, log_level=0)
        error, step = matcher.get_error() if matcher.is_error() else "", ""
        if not error:
            matcher.compute_ff_tokens()
            matcher.compute_bitmask()
            step = matcher.get_error() if matcher.is_error() else ""
        print(json.dumps({"error": error, "step": step, "seconds": time.thread_time() - begun}), flush=True)


def main() -> None:
    settings = json.loads(sys.argv[1])
    sys.path += settings["path"]
    limit_memory(settings["memory"])
    texts: SimpleQueue[str] = SimpleQueue()
    threading.stack_size(settings["stack"])
    threading.Thread(target=compile_all, args=(settings, texts), daemon=True).start()
    while size := sys.stdin.buffer.read(4):
        texts.put(sys.stdin.buffer.read(int.from_bytes(size, "big")).decode())
    os._exit(0)


if __name__ == "__main__":
    main()
