"""The thread pool of compiled programs, in LLVM IR, with their scratch memory.

What it does and why is said in :mod:`tilewright.runtime.llvm_pool`, which loads it. Ranges and
pieces are also those of loops on other threads, :mod:`tilewright.codegen.llvm.openmp`.
"""

from __future__ import annotations

from tilewright.codegen.llvm.heap import HEAP
from tilewright.codegen.llvm.openmp import OPENMP

MAX_THREADS = 256
#: In how many pieces a thread carries out its range.
_PIECES = 4

_REPEAT = """
define i32 @tw_repeat(ptr %program, ptr %arrays, ptr %scalars, i64 %number) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %bad = phi i32 [ 0, %entry ], [ %bad.next, %loop ]
  %status = call i32 %program(ptr %arrays, ptr %scalars)
  %bad.next = or i32 %bad, %status
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %number
  br i1 %again, label %loop, label %done
done:
  ret i32 %bad.next
}
"""

_CALLER = """
define void @tw_alone(ptr %fn, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
  call void %fn(ptr %closure, i64 %first, i64 %end)
  ret void
}
"""

_RANGES = """
; A function, its closure, the first iteration, how many there are, in how many parts; with OpenMP,
; how many pieces of each part have been asked for.
%Job = type { ptr, ptr, i64, i64, i64, ptr }

; Carry out one piece of one part of a job.
define internal void @share(ptr %job, i64 %part, i64 %piece) {
entry:
  %fn = load ptr, ptr %job
  %closure.at = getelementptr %Job, ptr %job, i32 0, i32 1
  %closure = load ptr, ptr %closure.at
  %first.at = getelementptr %Job, ptr %job, i32 0, i32 2
  %first = load i64, ptr %first.at
  %count.at = getelementptr %Job, ptr %job, i32 0, i32 3
  %count = load i64, ptr %count.at
  %parts.at = getelementptr %Job, ptr %job, i32 0, i32 4
  %parts = load i64, ptr %parts.at
  %each = udiv i64 %count, %parts
  %rest = urem i64 %count, %parts
  %more = icmp ult i64 %part, %rest
  %before = select i1 %more, i64 %part, i64 %rest
  %full = mul i64 %each, %part
  %offset = add i64 %full, %before
  %extra = zext i1 %more to i64
  %size = add i64 %each, %extra
  %from.1 = mul i64 %size, %piece
  %from = udiv i64 %from.1, PIECES
  %to.1 = add i64 %from.1, %size
  %to = udiv i64 %to.1, PIECES
  %base = add i64 %first, %offset
  %begin = add i64 %base, %from
  %end = add i64 %base, %to
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %work, label %done
work:
  call void %fn(ptr %closure, i64 %begin, i64 %end)
  br label %done
done:
  ret void
}
"""

_THREADS = """
; A mailbox: its number of jobs so far at 0, whether its worker sleeps at 4, how many pieces of its
; range have been asked for at 8, a mutex at 64, a condition variable at 128.
;
; A range has PIECES pieces in every job, so a number below that, got from a mailbox, is a piece of
; the job under way: the job was written before the count went back to 0, and it stays until all
; pieces are done.
@mailboxes = internal global [MAX x [256 x i8]] zeroinitializer, align 256
@busy = internal global i32 0, align 64
@pending = internal global i32 0, align 64
@started = internal global i32 1
@spin = internal global i32 1024
@default = internal global i32 1
@job = internal global %Job zeroinitializer, align 64

; Carry out the pieces of one range that nobody has begun.
define internal void @take(i64 %part) {
entry:
  %next = getelementptr [MAX x [256 x i8]], ptr @mailboxes, i64 0, i64 %part, i64 8
  %seen = load atomic i32, ptr %next monotonic, align 4
  %left = icmp ult i32 %seen, PIECES
  br i1 %left, label %ask, label %none
ask:
  %count = phi i32 [ 0, %entry ], [ %count.next, %work ]
  %piece = atomicrmw add ptr %next, i32 1 acquire
  %mine = icmp ult i32 %piece, PIECES
  br i1 %mine, label %work, label %out
work:
  %wide = zext i32 %piece to i64
  call void @share(ptr @job, i64 %part, i64 %wide)
  %count.next = add i32 %count, 1
  br label %ask
out:
  atomicrmw sub ptr @pending, i32 %count release
  br label %none
none:
  ret void
}

define internal ptr @worker(ptr %number) {
entry:
  %part = ptrtoint ptr %number to i64
  %box = getelementptr [MAX x [256 x i8]], ptr @mailboxes, i64 0, i64 %part
  %sleeping = getelementptr i8, ptr %box, i64 4
  %mutex = getelementptr i8, ptr %box, i64 64
  %cond = getelementptr i8, ptr %box, i64 128
  %limit = load i32, ptr @spin
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %now.2, %work ]
  br label %poll
poll:
  %turn = phi i32 [ 0, %idle ], [ %turn.next, %wait ]
  %now = load atomic i32, ptr %box acquire, align 4
  %new = icmp ne i32 %now, %last
  br i1 %new, label %work, label %wait
wait:
  PAUSE
  %turn.next = add i32 %turn, 1
  %tired = icmp sgt i32 %turn.next, %limit
  br i1 %tired, label %sleep, label %poll
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %sleeping seq_cst, align 4
  br label %check
check:
  %now.1 = load atomic i32, ptr %box seq_cst, align 4
  %same = icmp eq i32 %now.1, %last
  br i1 %same, label %rest, label %wake
rest:
  call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %check
wake:
  store atomic i32 0, ptr %sleeping seq_cst, align 4
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
work:
  %now.2 = phi i32 [ %now, %poll ], [ %now.1, %wake ]
  call void @take(i64 %part)
  call void @take(i64 0)                ; what the caller has not got to
  br label %idle
}

define internal void @ensure(i32 %threads) {
entry:
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %id = alloca i64
  %have = load i32, ptr @started
  %enough = icmp sge i32 %have, %threads
  br i1 %enough, label %done, label %begin
begin:                                  ; signals are for Python's threads
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 SETMASK, ptr %all, ptr %old)
  br label %next
next:
  %k = load i32, ptr @started
  %more = icmp slt i32 %k, %threads
  br i1 %more, label %start, label %end
start:
  %part = zext i32 %k to i64
  %number = inttoptr i64 %part to ptr
  %box = getelementptr [MAX x [256 x i8]], ptr @mailboxes, i64 0, i64 %part
  %mutex = getelementptr i8, ptr %box, i64 64
  %cond = getelementptr i8, ptr %box, i64 128
  %next.at = getelementptr i8, ptr %box, i64 8
  store i32 PIECES, ptr %next.at
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %cond, ptr null)
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %number)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %end, label %made
made:
  %thread = load i64, ptr %id
  call i32 @pthread_detach(i64 %thread)
  %k.next = add i32 %k, 1
  store i32 %k.next, ptr @started
  br label %next
end:
  call i32 @pthread_sigmask(i32 SETMASK, ptr %old, ptr null)
  br label %done
done:
  ret void
}

define void @tw_parallel(ptr %fn, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  %count = sub i64 %end, %first
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %some, label %done
some:
  %default = load i32, ptr @default
  %open = icmp eq i32 %wanted, 0
  %asked = select i1 %open, i32 %default, i32 %wanted
  %too.many = icmp sgt i32 %asked, MAX
  %capped = select i1 %too.many, i32 MAX, i32 %asked
  %wide = zext i32 %capped to i64
  %few = icmp slt i64 %count, %wide
  %parts.0 = select i1 %few, i64 %count, i64 %wide
  %single = icmp sle i64 %parts.0, 1
  br i1 %single, label %alone, label %claim
claim:
  %old = atomicrmw xchg ptr @busy, i32 1 acquire
  %taken = icmp ne i32 %old, 0
  br i1 %taken, label %alone, label %mine
alone:
  call void %fn(ptr %closure, i64 %first, i64 %end)
  ret void
mine:
  %needed = trunc i64 %parts.0 to i32
  call void @ensure(i32 %needed)
  %have.32 = load i32, ptr @started
  %have = zext i32 %have.32 to i64
  %short = icmp ult i64 %have, %parts.0
  %parts = select i1 %short, i64 %have, i64 %parts.0
  store ptr %fn, ptr @job
  store ptr %closure, ptr getelementptr (%Job, ptr @job, i32 0, i32 1)
  store i64 %first, ptr getelementptr (%Job, ptr @job, i32 0, i32 2)
  store i64 %count, ptr getelementptr (%Job, ptr @job, i32 0, i32 3)
  store i64 %parts, ptr getelementptr (%Job, ptr @job, i32 0, i32 4)
  %parts.32 = trunc i64 %parts to i32
  %pieces = mul i32 %parts.32, PIECES
  store atomic i32 %pieces, ptr @pending release, align 4
  %own.next = getelementptr i8, ptr @mailboxes, i64 8
  store atomic i32 0, ptr %own.next release, align 4
  br label %post
post:
  %k = phi i64 [ 1, %mine ], [ %k.next, %posted ]
  %left = icmp ult i64 %k, %parts
  br i1 %left, label %send, label %own
send:
  %box = getelementptr [MAX x [256 x i8]], ptr @mailboxes, i64 0, i64 %k
  %next.at = getelementptr i8, ptr %box, i64 8
  store atomic i32 0, ptr %next.at release, align 4
  atomicrmw add ptr %box, i32 1 seq_cst
  %sleeping.at = getelementptr i8, ptr %box, i64 4
  %sleeping = load atomic i32, ptr %sleeping.at seq_cst, align 4
  %awake = icmp eq i32 %sleeping, 0
  br i1 %awake, label %posted, label %wake
wake:
  %mutex = getelementptr i8, ptr %box, i64 64
  %cond = getelementptr i8, ptr %box, i64 128
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_signal(ptr %cond)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %posted
posted:
  %k.next = add i64 %k, 1
  br label %post
own:
  call void @take(i64 0)
  br label %steal
steal:                                  ; what workers have not begun
  %j = phi i64 [ 1, %own ], [ %j.next, %stolen ]
  %all.taken = icmp uge i64 %j, %parts
  br i1 %all.taken, label %join, label %stolen
stolen:
  call void @take(i64 %j)
  %j.next = add i64 %j, 1
  br label %steal
join:
  %turn = phi i32 [ 0, %steal ], [ %turn.next, %again ]
  %pending = load atomic i32, ptr @pending acquire, align 4
  %finished = icmp eq i32 %pending, 0
  br i1 %finished, label %free, label %wait
wait:
  PAUSE
  %turn.next = add i32 %turn, 1
  %limit = load i32, ptr @spin
  %long = icmp sgt i32 %turn.next, %limit
  br i1 %long, label %yield, label %again
yield:
  call i32 @sched_yield()
  br label %again
again:
  br label %join
free:
  store atomic i32 0, ptr @busy release, align 4
  br label %done
done:
  ret void
}

define void @tw_reset() {
  call void @llvm.memset.p0.i64(ptr align 256 @mailboxes, i8 0, i64 BYTES, i1 false)
  store i32 1, ptr @started
  store i32 0, ptr @busy
  store i32 0, ptr @memory.lock
  store ptr null, ptr @omp.parallel
  ret void
}

define void @tw_configure(i32 %threads, i32 %turns) {
  store i32 %threads, ptr @default
  store i32 %turns, ptr @spin
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @sched_yield()
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
"""

#: Where there are no POSIX threads, every loop runs in its caller.
_ALONE = """
define void @tw_parallel(ptr %fn, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
  call void %fn(ptr %closure, i64 %first, i64 %end)
  ret void
}

define void @tw_reset() {
  store i32 0, ptr @memory.lock
  ret void
}

define void @tw_configure(i32 %threads, i32 %turns) {
  ret void
}
"""


def source(machine: str, posix: bool, darwin: bool) -> str:
    """The pool and the heap for a machine ("x86_64") and the threads of its system."""
    pause = 'call void asm sideeffect "", "~{memory}"()'
    if machine in ("x86_64", "amd64"):
        pause = 'call void asm sideeffect "pause", "~{memory}"()'
    elif machine in ("aarch64", "arm64"):
        pause = 'call void asm sideeffect "yield", "~{memory}"()'
    text = HEAP + _REPEAT + _CALLER + (_RANGES + _THREADS + OPENMP if posix else _ALONE)
    text = text.replace("PAUSE", pause).replace("SETMASK", "3" if darwin else "2")
    text = text.replace("BYTES", str(256 * MAX_THREADS)).replace("PIECES", str(_PIECES))
    return text.replace("MAX", str(MAX_THREADS))
