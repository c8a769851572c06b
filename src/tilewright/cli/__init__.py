"""The commands: each public module here, other than ``main``, is one."""
