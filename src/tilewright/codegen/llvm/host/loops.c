// Parts of loops, and loops that run in their caller.

#include "host.h"

void tw_chunk(const Job *job, u64 part, u64 chunk) {
    const u64 each = job->count / job->parts, rest = job->count % job->parts;
    const u64 longer = part < rest; // the first ranges have one iteration more
    const u64 size = each + longer, begin = each * part + (longer ? part : rest);
    const u64 from = begin + size * chunk / CHUNKS, to = begin + size * (chunk + 1) / CHUNKS;
    if (from < to) job->body(job->closure, job->first + (i64)from, job->first + (i64)to);
}

// In place of tw_parallel of threads.c: the whole loop in its caller.
void tw_alone(Body body, void *closure, i64 first, i64 end, i32 wanted) {
    (void)wanted;
    body(closure, first, end);
}

// Call a program several times, to measure it. Not 0 where one of the calls was without memory.
i32 tw_repeat(i32 (*program)(void *, void *), void *arrays, void *scalars, i64 times) {
    i32 failed = 0;
    for (i64 i = 0; i < times; ++i) failed |= program(arrays, scalars);
    return failed;
}

// A program and its arguments.
typedef struct {
    i32 (*program)(void *, void *);
    void *arrays, *scalars;
} Call;

// Call programs one after the other. The number of the first that was without memory, from 1 on,
// behind which none is called; else 0.
i64 tw_sequence(const Call *calls, i64 count) {
    for (i64 i = 0; i < count; ++i)
        if (calls[i].program(calls[i].arrays, calls[i].scalars)) return i + 1;
    return 0;
}
