"""How much memory there is for a model, and how much one takes."""

from contextlib import suppress
from pathlib import Path

from callsmith.core.errors import CallsmithError

ROOM = 1.2  # how much memory a model takes, as a multiple of its file: the rest is its context


def free_memory() -> int | None:
    """Bytes of memory available to this process; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:  # a container may have less than its machine
        group = Path("/sys/fs/cgroup")
        most, used = ((group / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):
        return free


def model_memory() -> int | None:
    """Bytes of memory for a model: of the GPUs or of the processor, whichever are more; None if neither is known."""
    from callsmith.engines.llama.libllama import load
    from callsmith.engines.llama.placement import gpus

    free = free_memory()
    known = [] if free is None else [free]
    with suppress(CallsmithError, ImportError, OSError):  # no library: an error says so where one is needed
        known.append(sum(device.free for device in gpus(load())))
    return max(known, default=None) or None
