"""The debuggers of N ranks as one: Debug Adapter Protocol on one side, N times ipykernel on the other.

``debugger`` is the machine that the hub routes to; ``jupyter`` is the transport of notebooks, and other
transports are one more `session.Session` each.  A command is a file in ``commands``.
"""
