// What the functions of a compiled program's process share.
//
// No header of a system is used, so that the same LLVM IR serves every machine: types have the sizes
// of all 64-bit systems, and addresses of the C library's functions are looked up when it is loaded.

typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
#define NULL ((void *)0)

// A compiled loop: carries out the iterations from `begin` up to `end`.
typedef void (*Body)(void *closure, i64 begin, i64 end);

enum {
    MAX_THREADS = 256,
    CHUNKS = 4, // in which a thread carries out its range of iterations
};

// A loop under way, its iterations divided into one range for each of `parts` threads.
typedef struct {
    Body body;
    void *closure;
    i64 first;
    u64 count;
    u64 parts;
    void *counts; // with OpenMP: how many chunks of each range have been taken
} Job;

// Carry out one chunk of one range of a job.
void tw_chunk(const Job *job, u64 part, u64 chunk);

// Tell the processor that this thread waits for another one.
void tw_pause(void);

// In the child of a fork: forget the threads of the parent, and what they held.
void tw_reset_heap(void);
void tw_reset_openmp(void);

#define LOAD(at, order) __atomic_load_n(at, __ATOMIC_##order)
#define STORE(at, value, order) __atomic_store_n(at, value, __ATOMIC_##order)
#define ADD(at, value, order) __atomic_fetch_add(at, value, __ATOMIC_##order)
#define SWAP(at, value, order) __atomic_exchange_n(at, value, __ATOMIC_##order)
