"""Launching the kernels of one call, in LLVM IR, as a builtin function of Python's.

:mod:`tilewright.runtime.cuda_call` writes the plan that it follows, loads it, and says what for.
"""

from __future__ import annotations

#: The function that :data:`SOURCE` defines, and those of Python's that it calls.
NAME = "tw_launch"
PYTHON = (
    "PyBytes_AsString", "PyErr_BadArgument", "PyErr_Occurred", "PyEval_RestoreThread",
    "PyEval_SaveThread", "PyLong_AsUnsignedLongLong", "PyLong_FromLongLong", "PyTuple_GetItem",
    "PyTuple_Size",
)  # fmt: skip
#: Addresses of a call, and parameters of a kernel: so many at most.
MOST = 512
#: Words of a plan before its scalars and kernels, of a kernel before the codes of its parameters.
HEAD, KERNEL = 5, 9
#: What the code of a parameter says beside its place: that it counts words of the plan and not
#: addresses of the call; that the parameter is what stands there and not where that stands.
OF_PLAN, ITSELF = 1, 2

# In C, where ``self`` is a bytes object with the plan:
#
#   PyObject *tw_launch(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
#       uint64_t *plan = PyBytes_AsString(self), *kernel = plan + HEAD + plan[4];
#       uint64_t given = plan[0], unaligned = plan[1], kernels = plan[2], values[MOST], all = 0;
#       CUresult (*driver)(CUlaunchConfig *, CUfunction, void **, void **) = plan[3];
#       void *parameters[MOST];
#       if (count != 2 || PyTuple_Size(arguments[1]) != given) { PyErr_BadArgument(); return 0; }
#       CUstream stream = PyLong_AsUnsignedLongLong(arguments[0]);
#       for (i = 0; i < given; ++i)
#           all |= values[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(arguments[1], i));
#       if (PyErr_Occurred()) return 0;
#       if (all & unaligned) return PyLong_FromLongLong(-1);
#       PyThreadState *state = PyEval_SaveThread(); // the driver waits where its queue is full
#       for (k = status = 0; k < kernels && !status; ++k) {
#           CUlaunchConfig how = *kernel; // words 0 to 6
#           how.hStream = stream, how.attrs = &follows;
#           for (i = 0; i < kernel[8]; ++i) {
#               uint64_t code = kernel[9 + i], *at = (code & OF_PLAN ? plan : values) + (code >> 2);
#               parameters[i] = code & ITSELF ? *at : at;
#           }
#           status = driver(&how, kernel[7], parameters, 0);
#           kernel += KERNEL + kernel[8];
#       }
#       PyEval_RestoreThread(state);
#       return PyLong_FromLongLong(status ? k << 32 | status : 0);
#   }
SOURCE = f"""
declare ptr @PyBytes_AsString(ptr)
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyEval_SaveThread()
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)

; CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: 1
@follows = internal global [9 x i64] [ i64 6, i64 1, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0,
                                       i64 0 ], align 8

define ptr @{NAME}(ptr %self, ptr %arguments, i64 %count) {{
entry:
  %values = alloca [{MOST} x i64], align 8
  %parameters = alloca [{MOST} x ptr], align 8
  %how = alloca [7 x i64], align 8
  %how.stream = getelementptr i64, ptr %how, i64 4
  %how.attributes = getelementptr i64, ptr %how, i64 5
  %plan = call ptr @PyBytes_AsString(ptr %self)
  %given = load i64, ptr %plan
  %unaligned.at = getelementptr i64, ptr %plan, i64 1
  %unaligned = load i64, ptr %unaligned.at
  %kernels.at = getelementptr i64, ptr %plan, i64 2
  %kernels = load i64, ptr %kernels.at
  %driver.at = getelementptr i64, ptr %plan, i64 3
  %driver = load ptr, ptr %driver.at
  %scalars.at = getelementptr i64, ptr %plan, i64 4
  %scalars = load i64, ptr %scalars.at
  %head = getelementptr i64, ptr %plan, i64 {HEAD}
  %first = getelementptr i64, ptr %head, i64 %scalars
  %two = icmp eq i64 %count, 2
  br i1 %two, label %sized, label %bad

sized:
  %tuple.at = getelementptr ptr, ptr %arguments, i64 1
  %tuple = load ptr, ptr %tuple.at
  %size = call i64 @PyTuple_Size(ptr %tuple)
  %right = icmp eq i64 %size, %given
  br i1 %right, label %begin, label %bad

bad:
  %ignored = call i32 @PyErr_BadArgument()
  ret ptr null

begin:
  %stream.object = load ptr, ptr %arguments
  %stream = call i64 @PyLong_AsUnsignedLongLong(ptr %stream.object)
  br label %read
read:                                   ; one address
  %i = phi i64 [ 0, %begin ], [ %i.next, %read ]
  %all = phi i64 [ 0, %begin ], [ %all.next, %read ]
  %object = call ptr @PyTuple_GetItem(ptr %tuple, i64 %i)
  %address = call i64 @PyLong_AsUnsignedLongLong(ptr %object)
  %value.at = getelementptr i64, ptr %values, i64 %i
  store i64 %address, ptr %value.at
  %all.next = or i64 %all, %address
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %given
  br i1 %i.more, label %read, label %known

known:
  %error = call ptr @PyErr_Occurred()
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %raise, label %checked
raise:
  ret ptr null
checked:
  %odd = and i64 %all.next, %unaligned
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %launch, label %refuse
refuse:
  %minus = call ptr @PyLong_FromLongLong(i64 -1)
  ret ptr %minus

launch:
  %state = call ptr @PyEval_SaveThread()
  %none = icmp eq i64 %kernels, 0
  br i1 %none, label %done, label %kernel
kernel:                                 ; one kernel
  %k = phi i64 [ 0, %launch ], [ %k.next, %called ]
  %at = phi ptr [ %first, %launch ], [ %at.next, %called ]
  %sizes = load [7 x i64], ptr %at, align 8
  store [7 x i64] %sizes, ptr %how, align 8
  store i64 %stream, ptr %how.stream
  store ptr @follows, ptr %how.attributes
  %function.at = getelementptr i64, ptr %at, i64 7
  %function = load ptr, ptr %function.at
  %number.at = getelementptr i64, ptr %at, i64 8
  %number = load i64, ptr %number.at
  %codes = getelementptr i64, ptr %at, i64 {KERNEL}
  %at.next = getelementptr i64, ptr %codes, i64 %number
  br label %next
next:
  %j = phi i64 [ 0, %kernel ], [ %j.next, %parameter ]
  %j.more = icmp ult i64 %j, %number
  br i1 %j.more, label %parameter, label %call
parameter:
  %code.at = getelementptr i64, ptr %codes, i64 %j
  %code = load i64, ptr %code.at
  %of.plan = and i64 %code, {OF_PLAN}
  %is.of.plan = icmp ne i64 %of.plan, 0
  %base = select i1 %is.of.plan, ptr %plan, ptr %values
  %place = lshr i64 %code, 2
  %found = getelementptr i64, ptr %base, i64 %place
  %what = load ptr, ptr %found
  %itself = and i64 %code, {ITSELF}
  %is.itself = icmp ne i64 %itself, 0
  %parameter.value = select i1 %is.itself, ptr %what, ptr %found
  %parameter.at = getelementptr ptr, ptr %parameters, i64 %j
  store ptr %parameter.value, ptr %parameter.at
  %j.next = add i64 %j, 1
  br label %next
call:
  %status = call i32 %driver(ptr %how, ptr %function, ptr %parameters, ptr null)
  br label %called
called:
  %k.next = add i64 %k, 1
  %fine = icmp eq i32 %status, 0
  %k.more = icmp ult i64 %k.next, %kernels
  %again = and i1 %fine, %k.more
  br i1 %again, label %kernel, label %done

done:
  %last = phi i32 [ 0, %launch ], [ %status, %called ]
  %launched = phi i64 [ 0, %launch ], [ %k.next, %called ]
  call void @PyEval_RestoreThread(ptr %state)
  %high = shl i64 %launched, 32
  %low = zext i32 %last to i64
  %both = or i64 %high, %low
  %is.fine = icmp eq i32 %last, 0
  %answer = select i1 %is.fine, i64 0, i64 %both
  %result = call ptr @PyLong_FromLongLong(i64 %answer)
  ret ptr %result
}}
"""
