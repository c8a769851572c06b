"""Schedules for GPUs, CUDA and OpenCL alike."""
