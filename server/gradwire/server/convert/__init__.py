"""Makes bundles of policies that other libraries have saved. Offline, for an operator; the server never imports it.

Reading a foreign checkpoint runs the code in it, so `runner` does it in a process of its own: `worker`, which may be
another interpreter, gets no credentials and no network where the system allows that, and hands back a bundle that is
checked like any other. Everything but `runner` runs there, and imports nothing else of the server.
"""
