// Launching the kernels of one call, as a builtin function of Python's.
//
// `self` is a bytes object with the plan, which tilewright.runtime.cuda_call writes in words of 64
// bits: a head, scalars, and for each kernel what Config has before the stream, its function, the
// number of its parameters and their codes.

#include "host.h"

enum {
    MOST = 512, // addresses of a call, and parameters of a kernel
    HEAD = 5,   // words before the scalars
    KERNEL = 9, // words of a kernel before its codes
    // What a code says beside its place: that it counts words of the plan and not addresses of the
    // call; that the parameter is what stands there and not where that stands.
    OF_PLAN = 1,
    ITSELF = 2,
};

// Python.
const char *PyBytes_AsString(void *object);
i32 PyErr_BadArgument(void);
void *PyErr_Occurred(void);
void PyEval_RestoreThread(void *state);
void *PyEval_SaveThread(void);
u64 PyLong_AsUnsignedLongLong(void *object);
void *PyLong_FromLongLong(i64 value);
void *PyTuple_GetItem(void *tuple, i64 place);
i64 PyTuple_Size(void *tuple);

// CUlaunchConfig.
typedef struct {
    u32 grid[3], block[3], shared;
    u64 stream;
    const u64 *attributes;
    u32 count; // of attributes: 1 where the kernel overlaps the one before
} Config;

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: 1.
static const u64 follows[9] = {6, 1};

// 0; -1 where an address is not aligned; where a kernel was refused, its number from 1 on, and the
// status in the low 32 bits.
void *tw_launch(void *self, void **arguments, i64 count) {
    u64 *plan = (u64 *)PyBytes_AsString(self);
    const u64 given = plan[0], unaligned = plan[1], kernels = plan[2], scalars = plan[4];
    i32 (*driver)(const Config *, u64, void **, void *) = (void *)plan[3];
    if (count != 2 || (u64)PyTuple_Size(arguments[1]) != given) {
        PyErr_BadArgument();
        return NULL;
    }
    u64 values[MOST], all = 0;
    const u64 stream = PyLong_AsUnsignedLongLong(arguments[0]);
    for (u64 i = 0; i < given; ++i) {
        values[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(arguments[1], (i64)i));
        all |= values[i];
    }
    if (PyErr_Occurred()) return NULL;
    if (all & unaligned) return PyLong_FromLongLong(-1);
    void *state = PyEval_SaveThread(); // the driver waits where its queue is full
    u64 *kernel = plan + HEAD + scalars, k = 0;
    u32 status = 0;
    while (k < kernels && !status) {
        Config config = *(const Config *)kernel;
        config.stream = stream;
        config.attributes = follows;
        void *parameters[MOST];
        for (u64 i = 0; i < kernel[8]; ++i) {
            const u64 code = kernel[KERNEL + i];
            u64 *at = (code & OF_PLAN ? plan : values) + (code >> 2);
            parameters[i] = code & ITSELF ? (void *)*at : at;
        }
        status = (u32)driver(&config, kernel[7], parameters, NULL);
        kernel += KERNEL + kernel[8];
        ++k;
    }
    PyEval_RestoreThread(state);
    return PyLong_FromLongLong(status ? (i64)(k << 32 | status) : 0);
}
