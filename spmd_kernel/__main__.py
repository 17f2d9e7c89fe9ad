"""``python -m spmd_kernel -f {connection_file}``: what the kernelspec runs."""

from __future__ import annotations

import gc
import os
import signal
import sys

# Before the imports, which take a moment: a Stop that comes early must not end the kernel.  The
# driver's own handler follows; ranks do not inherit "ignored".
signal.signal(signal.SIGINT, signal.SIG_IGN)

from .engines import early  # noqa: E402

if __name__ == "__main__":
    early.guess()

from .core.errors import SpmdError  # noqa: E402


def main() -> int:
    gc.disable()  # imports leave little to collect, and looking for it takes a tenth of their time
    from .io.driver import run
    from .settings import from_environment

    gc.enable()
    try:
        start = from_environment(sys.argv[1:], os.environ)
        return run(start.settings, start.connection_file, start.record)
    except SpmdError as error:
        print("spmd_kernel: " + "\n".join(error.lines()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
