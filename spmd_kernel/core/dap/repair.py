"""What a rank runs silently, on its main thread, when its debugger was left in a state of its own.

* SIGINT while it is stopped ends the cell, and pydevd goes on believing that the thread is suspended:
  no breakpoint stops it any more (debugpy#706, ipykernel#821).
* A step off the last line of a cell stays armed, and stops inside IPython in the next one.

The second stops at the first line of this, too: a step that ends in a request of our own goes on by
itself (`lifecycle.pass_on`).  The thread's state is set to what it is in a thread that runs, and only
then is it traced again: tracing alone would go on with the old state, and hang.
"""

from __future__ import annotations

_STATE = """\
        import threading
        from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info
        info = set_additional_thread_info(threading.main_thread())
        info.pydev_state = 1  # STATE_RUN
        info.pydev_step_cmd = -1
        info.pydev_original_step_cmd = -1
        info.pydev_step_stop = None
        info.suspended_at_unhandled = False
        try:
            info.update_stepping_info()
        except AttributeError:
            pass
"""
REPAIR = f"""\
def _spmd_repair():
    try:
{_STATE}
        import debugpy
        debugpy.trace_this_thread(True)
        import pydevd
        pydevd.get_global_debugger().threads_suspended_single_notification.spmd_mend()
    except (ImportError, AttributeError):
        pass
    try:
        get_ipython().kernel.debugger.stopped_threads = set()
    except (NameError, AttributeError):
        pass
_spmd_repair()
del _spmd_repair
"""

# An expression for the debugger's own thread, while the main one may be suspended: an interrupt broke its
# wait off, and since pydevd still believes in it, the next line of Python suspends it once more, in silence.
RELEASE = "exec({!r})".format("if True:\n" + _STATE)

# debugpy.listen failed, as a rule because another rank took the port between the two steps of ipykernel
# (ipykernel#988): it remembers the port, and must find another one.
ANOTHER_PORT = """\
try:
    get_ipython().kernel.debugger.debugpy_client.debugpy_port = -1
except (NameError, AttributeError):
    pass
"""
