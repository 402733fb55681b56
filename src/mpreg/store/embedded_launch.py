"""Starts a server that never outlives the process that asked for it. Run as a script of its own, not imported.

    python -I -S embedded_launch.py MODE PARENT_PID LIFE_FD SERVER ARGUMENT…

Why a process of its own: the death signal must be set between fork and exec, and running Python there (`preexec_fn`)
may deadlock in a program with threads. This script starts fresh, sets it, and becomes the server by exec.
MODE `signal` (Linux): PR_SET_PDEATHSIG, which survives exec. It belongs to the *thread* that started us, so the
supervisor starts servers on the thread of its event loop. The parent may have died before the signal was set:
therefore the look at getppid() afterwards.
MODE `pipe` (elsewhere): this process stays between the two, and ends the server when LIFE_FD reads end-of-file,
which happens when the last process holding the other end is gone.
"""

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    mode, parent, life = arguments[0], int(arguments[1]), int(arguments[2])
    command = arguments[3:]
    os.umask(0o077)
    # A terminal's Ctrl-C goes to the node, which then stops the server in order.
    os.setpgid(0, 0)
    if mode == "signal":
        become(parent, command)
        return 72
    return stay_between(life, command)


def become(parent: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        print("prctl(PR_SET_PDEATHSIG) failed", file=sys.stderr)  # noqa: T201 - stderr is the server's log
        sys.exit(70)
    if os.getppid() != parent:
        sys.exit(71)
    os.execv(command[0], command)  # noqa: S606


def stay_between(life: int, command: list[str]) -> int:
    # SIGCHLD has to interrupt the wait below: it writes to a pipe that select() looks at.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    server = os.fork()
    if server == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(life)
        os.execv(command[0], command)  # noqa: S606
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: os.kill(server, got))
    grace_s: float | None = None
    while True:
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) & 0xFF
        watched = [woken] if grace_s is not None else [woken, life]
        ready, _, _ = select.select(watched, [], [], grace_s)
        if woken in ready:
            os.read(woken, 512)
        elif life in ready and not os.read(life, 1):
            os.kill(server, signal.SIGTERM)
            grace_s = 10.0
        elif not ready:
            os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
