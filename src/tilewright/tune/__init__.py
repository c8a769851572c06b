"""Search spaces, tuners, measuring, records, progress.

Under AutoTVM's names they stand in :mod:`tilewright.tune.autotvm`, which is ``tvm.autotvm``.
"""
