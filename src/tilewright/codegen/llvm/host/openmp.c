// Parallel loops on the threads of an OpenMP runtime that the process has loaded.
//
// tw_openmp takes the place of tw_parallel. It begins a region by GOMP_parallel, the entry that
// GCC's compiled code calls, which Intel's and LLVM's runtimes have too. A member of the team carries
// out the chunks of its own range, then those of others that nobody has begun: of threads that lost
// their core, and of members that the team lacks because the runtime gave fewer than were asked for,
// as within another region.

#include "host.h"

void tw_parallel(Body body, void *closure, i64 first, i64 end, i32 wanted);

// How many chunks of a range have been taken; each has a cache line of its own.
typedef struct {
    _Alignas(64) u32 taken;
} Count;

typedef void (*Parallel)(void (*member)(void *), void *data, u32 threads, u32 flags);

// Functions of the runtime; parallel is NULL in the child of a fork, which has none of its threads.
static Parallel parallel;
static i32 (*thread_number)(void);
static i32 (*max_threads)(void);
static i32 threads; // that a loop uses if it does not say; 0: as many as the runtime has

void tw_openmp_use(Parallel begin, i32 (*number)(void), i32 (*most)(void), i32 wanted) {
    thread_number = number;
    max_threads = most;
    threads = wanted;
    parallel = begin;
}

void tw_reset_openmp(void) { parallel = NULL; }

static void member(void *data) {
    const Job *job = data;
    Count *counts = job->counts;
    const u64 own = (u32)thread_number();
    for (u64 k = 0; k < job->parts; ++k) {
        const u64 part = (own + k) % job->parts;
        u32 *taken = &counts[part].taken;
        while (LOAD(taken, RELAXED) < CHUNKS) {
            const u32 chunk = ADD(taken, 1, RELAXED);
            if (chunk < CHUNKS) tw_chunk(job, part, chunk);
        }
    }
}

void tw_openmp(Body body, void *closure, i64 first, i64 end, i32 wanted) {
    if (end <= first) return;
    const Parallel begin = parallel;
    if (!begin) {
        tw_parallel(body, closure, first, end, wanted);
        return;
    }
    if (!wanted) wanted = threads ? threads : max_threads();
    i64 parts = wanted > MAX_THREADS ? MAX_THREADS : wanted;
    if (parts > end - first) parts = end - first;
    if (parts <= 1) {
        body(closure, first, end);
        return;
    }
    Count counts[MAX_THREADS];
    for (i64 k = 0; k < parts; ++k) counts[k].taken = 0;
    Job job = {body, closure, first, (u64)(end - first), (u64)parts, counts};
    begin(member, &job, (u32)parts, 0);
}
