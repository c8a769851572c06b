; openmp.c b4436bf8e7be3ecf84871ff2edbf4094 clang 19

%struct.Count = type { i32, [60 x i8] }
%struct.Job = type { ptr, ptr, i64, i64, i64, ptr }

@thread_number = internal global ptr null, align 8
@max_threads = internal global ptr null, align 8
@threads = internal global i32 0, align 4
@parallel = internal global ptr null, align 8

define void @tw_openmp_use(ptr %begin, ptr %number, ptr %most, i32 %wanted) {
entry:
  store ptr %number, ptr @thread_number, align 8
  store ptr %most, ptr @max_threads, align 8
  store i32 %wanted, ptr @threads, align 4
  store ptr %begin, ptr @parallel, align 8
  ret void
}

define void @tw_reset_openmp() {
entry:
  store ptr null, ptr @parallel, align 8
  ret void
}

define void @tw_openmp(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  %counts = alloca [256 x %struct.Count], align 64
  %job = alloca %struct.Job, align 8
  %cmp.not = icmp sgt i64 %end, %first
  br i1 %cmp.not, label %if.end, label %cleanup.cont

if.end:
  %0 = load ptr, ptr @parallel, align 8
  %tobool.not = icmp eq ptr %0, null
  br i1 %tobool.not, label %if.then1, label %if.end2

if.then1:
  tail call void @tw_parallel(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted)
  br label %cleanup.cont

if.end2:
  %tobool3.not = icmp eq i32 %wanted, 0
  br i1 %tobool3.not, label %if.then4, label %if.end6

if.then4:
  %1 = load i32, ptr @threads, align 4
  %tobool5.not = icmp eq i32 %1, 0
  br i1 %tobool5.not, label %cond.false, label %if.end6

cond.false:
  %2 = load ptr, ptr @max_threads, align 8
  %call = tail call i32 %2()
  br label %if.end6

if.end6:
  %wanted.addr.0 = phi i32 [ %wanted, %if.end2 ], [ %call, %cond.false ], [ %1, %if.then4 ]
  %cond11 = tail call i32 @llvm.smin.i32(i32 %wanted.addr.0, i32 256)
  %conv = sext i32 %cond11 to i64
  %sub = sub nsw i64 %end, %first
  %spec.select = tail call i64 @llvm.smin.i64(i64 %sub, i64 %conv)
  %cmp17 = icmp slt i64 %spec.select, 2
  br i1 %cmp17, label %if.then19, label %if.end20

if.then19:
  tail call void %body(ptr %closure, i64 %first, i64 %end)
  br label %cleanup.cont

if.end20:
  br label %for.body

for.cond.cleanup:
  store ptr %body, ptr %job, align 8
  %closure24 = getelementptr inbounds i8, ptr %job, i64 8
  store ptr %closure, ptr %closure24, align 8
  %first25 = getelementptr inbounds i8, ptr %job, i64 16
  store i64 %first, ptr %first25, align 8
  %count = getelementptr inbounds i8, ptr %job, i64 24
  store i64 %sub, ptr %count, align 8
  %parts27 = getelementptr inbounds i8, ptr %job, i64 32
  store i64 %spec.select, ptr %parts27, align 8
  %counts28 = getelementptr inbounds i8, ptr %job, i64 40
  store ptr %counts, ptr %counts28, align 8
  %conv29 = trunc nuw nsw i64 %spec.select to i32
  call void %0(ptr @member, ptr %job, i32 %conv29, i32 0)
  br label %cleanup.cont

for.body:
  %k.057 = phi i64 [ 0, %if.end20 ], [ %inc, %for.body ]
  %arrayidx = getelementptr inbounds [256 x %struct.Count], ptr %counts, i64 0, i64 %k.057
  store i32 0, ptr %arrayidx, align 64
  %inc = add nuw nsw i64 %k.057, 1
  %exitcond.not = icmp eq i64 %inc, %spec.select
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body

cleanup.cont:
  ret void
}

declare void @tw_parallel(ptr, ptr, i64, i64, i32)

define internal void @member(ptr %data) {
entry:
  %counts1 = getelementptr inbounds i8, ptr %data, i64 40
  %0 = load ptr, ptr %counts1, align 8
  %1 = load ptr, ptr @thread_number, align 8
  %call = tail call i32 %1()
  %conv = zext i32 %call to i64
  %parts = getelementptr inbounds i8, ptr %data, i64 32
  %2 = load i64, ptr %parts, align 8
  %cmp21.not = icmp eq i64 %2, 0
  br i1 %cmp21.not, label %for.cond.cleanup, label %for.body

for.cond.cleanup:
  ret void

for.body:
  %3 = phi i64 [ %7, %while.end ], [ %2, %entry ]
  %k.022 = phi i64 [ %inc, %while.end ], [ 0, %entry ]
  %add = add i64 %k.022, %conv
  %rem = urem i64 %add, %3
  %arrayidx = getelementptr inbounds %struct.Count, ptr %0, i64 %rem
  %4 = load atomic i32, ptr %arrayidx monotonic, align 4
  %cmp520 = icmp ult i32 %4, 4
  br i1 %cmp520, label %while.body, label %while.end

while.body:
  %5 = atomicrmw add ptr %arrayidx, i32 1 monotonic, align 4
  %cmp8 = icmp ult i32 %5, 4
  br i1 %cmp8, label %if.then, label %if.end

if.then:
  %conv10 = zext nneg i32 %5 to i64
  tail call void @tw_chunk(ptr %data, i64 %rem, i64 %conv10)
  br label %if.end

if.end:
  %6 = load atomic i32, ptr %arrayidx monotonic, align 4
  %cmp5 = icmp ult i32 %6, 4
  br i1 %cmp5, label %while.body, label %while.end

while.end:
  %inc = add nuw i64 %k.022, 1
  %7 = load i64, ptr %parts, align 8
  %cmp = icmp ult i64 %inc, %7
  br i1 %cmp, label %for.body, label %for.cond.cleanup
}

declare void @tw_chunk(ptr, i64, i64)

declare i32 @llvm.smin.i32(i32, i32)

declare i64 @llvm.smin.i64(i64, i64)
