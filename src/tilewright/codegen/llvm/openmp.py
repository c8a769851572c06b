"""Parallel loops on the threads of an OpenMP runtime, in LLVM IR.

``tw_openmp`` takes the place of ``tw_parallel``. It begins a region by ``GOMP_parallel``, the entry
that GCC's compiled code calls, which Intel's and LLVM's runtimes have too. A member of the team
carries out the pieces of its own range, then those of others that nobody has begun: of threads that
lost their core, and of members that the team lacks because the runtime gave fewer than were asked
for, as within another region. What the runtime and its addresses are is said in
:mod:`tilewright.runtime.llvm_openmp`.
"""

OPENMP = """
@omp.parallel = internal global ptr null
@omp.number = internal global ptr null
@omp.most = internal global ptr null
@omp.threads = internal global i32 0

define void @tw_openmp_use(ptr %parallel, ptr %number, ptr %most, i32 %threads) {
  store ptr %number, ptr @omp.number
  store ptr %most, ptr @omp.most
  store i32 %threads, ptr @omp.threads
  store ptr %parallel, ptr @omp.parallel
  ret void
}

; What a member of the team does; the counts of pieces asked for lie 64 bytes apart.
define internal void @member(ptr %job) {
entry:
  %number = load ptr, ptr @omp.number
  %own.32 = call i32 %number()
  %own = zext i32 %own.32 to i64
  %parts.at = getelementptr %Job, ptr %job, i32 0, i32 4
  %parts = load i64, ptr %parts.at
  %counts.at = getelementptr %Job, ptr %job, i32 0, i32 5
  %counts = load ptr, ptr %counts.at
  br label %range
range:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %sum = add i64 %own, %k
  %part = urem i64 %sum, %parts
  %count.at = getelementptr [64 x i8], ptr %counts, i64 %part
  br label %ask
ask:
  %seen = load atomic i32, ptr %count.at monotonic, align 4
  %left = icmp ult i32 %seen, PIECES
  br i1 %left, label %try, label %next
try:
  %piece = atomicrmw add ptr %count.at, i32 1 monotonic
  %mine = icmp ult i32 %piece, PIECES
  br i1 %mine, label %work, label %next
work:
  %wide = zext i32 %piece to i64
  call void @share(ptr %job, i64 %part, i64 %wide)
  br label %ask
next:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %parts
  br i1 %more, label %range, label %done
done:
  ret void
}

define void @tw_openmp(ptr %fn, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  %job = alloca %Job, align 64
  %count = sub i64 %end, %first
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %some, label %done
some:
  %parallel = load ptr, ptr @omp.parallel
  %gone = icmp eq ptr %parallel, null
  br i1 %gone, label %own, label %here
own:                                    ; the child of a fork
  call void @tw_parallel(ptr %fn, ptr %closure, i64 %first, i64 %end, i32 %wanted)
  ret void
here:
  %named = load i32, ptr @omp.threads
  %open = icmp eq i32 %wanted, 0
  %said = select i1 %open, i32 %named, i32 %wanted
  %unsaid = icmp eq i32 %said, 0
  br i1 %unsaid, label %ask, label %known
ask:
  %most = load ptr, ptr @omp.most
  %theirs = call i32 %most()
  br label %known
known:
  %asked = phi i32 [ %said, %here ], [ %theirs, %ask ]
  %too.many = icmp sgt i32 %asked, MAX
  %capped = select i1 %too.many, i32 MAX, i32 %asked
  %wide = sext i32 %capped to i64
  %few = icmp slt i64 %count, %wide
  %parts = select i1 %few, i64 %count, i64 %wide
  %single = icmp sle i64 %parts, 1
  br i1 %single, label %alone, label %team
alone:
  call void %fn(ptr %closure, i64 %first, i64 %end)
  ret void
team:
  %counts = alloca [64 x i8], i64 %parts, align 64
  br label %clear
clear:
  %k = phi i64 [ 0, %team ], [ %k.next, %clear ]
  %count.at = getelementptr [64 x i8], ptr %counts, i64 %k
  store i32 0, ptr %count.at
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %parts
  br i1 %more, label %clear, label %begin
begin:
  store ptr %fn, ptr %job
  %at.1 = getelementptr %Job, ptr %job, i32 0, i32 1
  store ptr %closure, ptr %at.1
  %at.2 = getelementptr %Job, ptr %job, i32 0, i32 2
  store i64 %first, ptr %at.2
  %at.3 = getelementptr %Job, ptr %job, i32 0, i32 3
  store i64 %count, ptr %at.3
  %at.4 = getelementptr %Job, ptr %job, i32 0, i32 4
  store i64 %parts, ptr %at.4
  %at.5 = getelementptr %Job, ptr %job, i32 0, i32 5
  store ptr %counts, ptr %at.5
  %parts.32 = trunc i64 %parts to i32
  call void %parallel(ptr @member, ptr %job, i32 %parts.32, i32 0)
  br label %done
done:
  ret void
}
"""
