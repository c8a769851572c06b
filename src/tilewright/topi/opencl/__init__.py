"""Schedules for OpenCL devices, those without shared memory among them."""
