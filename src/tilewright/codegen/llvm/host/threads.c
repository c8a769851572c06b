// A pool of POSIX threads for parallel loops. Each worker waits at a mailbox of its own: it spins for
// a while, since the next loop usually comes at once, then sleeps on a condition variable. The pool
// serves one loop at a time; a loop that finds it busy runs in its caller alone.

#include "host.h"

// POSIX. The sizes are upper bounds over Linux and macOS, of pthread_t the exact one.
typedef struct {
    char bytes[64];
} Mutex;
typedef struct {
    char bytes[64];
} Condition;
typedef struct {
    char bytes[128];
} Signals;

i32 sched_yield(void);
i32 sigfillset(Signals *set);
i32 pthread_sigmask(i32 how, const Signals *set, Signals *old);
i32 pthread_create(u64 *thread, const void *attributes, void *(*run)(void *), void *argument);
i32 pthread_detach(u64 thread);
i32 pthread_mutex_init(Mutex *mutex, const void *attributes);
i32 pthread_mutex_lock(Mutex *mutex);
i32 pthread_mutex_unlock(Mutex *mutex);
i32 pthread_cond_init(Condition *condition, const void *attributes);
i32 pthread_cond_wait(Condition *condition, Mutex *mutex);
i32 pthread_cond_signal(Condition *condition);

// A range has CHUNKS chunks in every job, so a number below that, taken from a mailbox, is a chunk of
// the job under way: the job was written before `taken` went back to 0, and it stays until all its
// chunks are done.
typedef struct {
    _Alignas(256) u32 jobs; // so far
    u32 sleeps;             // whether its worker does
    u32 taken;              // how many chunks of its range somebody has begun, or more
    _Alignas(64) Mutex mutex;
    _Alignas(64) Condition condition;
} Mailbox;

static Mailbox mailboxes[MAX_THREADS]; // the first is the caller's
static Job job;
static _Alignas(64) u32 busy;
static _Alignas(64) u32 pending; // chunks of the job that are not done
static i32 started = 1;          // threads that there are, the caller included
static i32 turns = 1024;         // of waiting before a worker sleeps
static i32 threads = 1;          // that a loop uses if it does not say
static i32 set_mask;             // SIG_SETMASK of this system

// Carry out the chunks of one range that nobody has begun.
static void take(u64 part) {
    u32 *taken = &mailboxes[part].taken;
    if (LOAD(taken, RELAXED) >= CHUNKS) return;
    u32 count = 0;
    for (u32 chunk; (chunk = ADD(taken, 1, ACQUIRE)) < CHUNKS; ++count) tw_chunk(&job, part, chunk);
    ADD(&pending, -count, RELEASE);
}

static void *worker(void *number) {
    const u64 part = (u64)number;
    Mailbox *box = &mailboxes[part];
    const i32 most = turns;
    for (u32 last = 0;;) {
        u32 now;
        for (i32 turn = 0; (now = LOAD(&box->jobs, ACQUIRE)) == last;) {
            tw_pause();
            if (++turn <= most) continue;
            pthread_mutex_lock(&box->mutex);
            STORE(&box->sleeps, 1, SEQ_CST);
            // tw_parallel counts the job, then reads `sleeps`: one of the two reads the other's store.
            while ((now = LOAD(&box->jobs, SEQ_CST)) == last)
                pthread_cond_wait(&box->condition, &box->mutex);
            STORE(&box->sleeps, 0, SEQ_CST);
            pthread_mutex_unlock(&box->mutex);
            break;
        }
        last = now;
        take(part);
        take(0); // what the caller has not begun
    }
}

// Start workers until there are `wanted` threads, or no more are to be had.
static void ensure(i32 wanted) {
    if (started >= wanted) return;
    Signals all, old;
    sigfillset(&all); // signals are for Python's threads
    pthread_sigmask(set_mask, &all, &old);
    for (; started < wanted; ++started) {
        Mailbox *box = &mailboxes[started];
        box->taken = CHUNKS;
        pthread_mutex_init(&box->mutex, NULL);
        pthread_cond_init(&box->condition, NULL);
        u64 thread;
        if (pthread_create(&thread, NULL, worker, (void *)(u64)started)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(set_mask, &old, NULL);
}

// Carry out a loop on up to `wanted` threads, 0 for the number that is configured.
void tw_parallel(Body body, void *closure, i64 first, i64 end, i32 wanted) {
    if (end <= first) return;
    i64 parts = wanted ? wanted : threads;
    if (parts > MAX_THREADS) parts = MAX_THREADS;
    if (parts > end - first) parts = end - first;
    if (parts <= 1 || SWAP(&busy, 1, ACQUIRE)) {
        body(closure, first, end);
        return;
    }
    ensure((i32)parts);
    if (parts > started) parts = started;
    job = (Job){body, closure, first, (u64)(end - first), (u64)parts, NULL};
    STORE(&pending, (u32)parts * CHUNKS, RELEASE);
    STORE(&mailboxes[0].taken, 0, RELEASE);
    for (i64 k = 1; k < parts; ++k) {
        Mailbox *box = &mailboxes[k];
        STORE(&box->taken, 0, RELEASE);
        ADD(&box->jobs, 1, SEQ_CST);
        if (LOAD(&box->sleeps, SEQ_CST)) {
            pthread_mutex_lock(&box->mutex);
            pthread_cond_signal(&box->condition);
            pthread_mutex_unlock(&box->mutex);
        }
    }
    for (i64 k = 0; k < parts; ++k) take((u64)k); // its own range, then what workers have not begun
    for (i32 turn = 1; LOAD(&pending, ACQUIRE); ++turn) {
        tw_pause();
        if (turn > turns) sched_yield();
    }
    STORE(&busy, 0, RELEASE);
}

// `how` is SIG_SETMASK, whose number depends on the system.
void tw_configure(i32 number, i32 waiting, i32 how) {
    threads = number;
    turns = waiting;
    set_mask = how;
}

void tw_reset(void) {
    __builtin_memset(mailboxes, 0, sizeof mailboxes);
    started = 1;
    busy = 0;
    tw_reset_heap();
    tw_reset_openmp();
}
