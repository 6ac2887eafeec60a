"""Start a command so that it dies with the process that started it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1

# Runs in the child before the command: ask the kernel to kill the child with its parent, unless the parent is dead
# already. Not a `preexec_fn`: Python code between fork and exec is not safe in a process with threads. Signals stay
# blocked until here, so that an early one ends the command instead of reaching this Python code.
_SCRIPT = f"""import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
if os.getppid() != int(sys.argv[1]): os._exit({128 + signal.SIGKILL})
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try: os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error: print(f"leasehold: {{sys.argv[2]}}: {{error.strerror}}", file=sys.stderr); os._exit(127)
"""


def dying_with_parent(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` and has the kernel kill it when the calling thread's process dies.

    Start it from the main thread: the kernel watches the thread that starts a process.
    """
    return [sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *argv]
