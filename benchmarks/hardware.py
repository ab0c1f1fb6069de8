"""What the numbers of a benchmark are of."""

import platform


def processor() -> str:
    """Return the processor's name, or its kind where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
