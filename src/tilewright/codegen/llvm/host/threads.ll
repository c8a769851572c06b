; threads.c b77cf983f1f357a1cacdf4a66bf4fcb7 clang 19

%struct.Job = type { ptr, ptr, i64, i64, i64, ptr }
%struct.Mailbox = type { i32, i32, i32, [52 x i8], %struct.Mutex, %struct.Condition, [64 x i8] }
%struct.Mutex = type { [64 x i8] }
%struct.Condition = type { [64 x i8] }
%struct.Signals = type { [128 x i8] }

@threads = internal global i32 1, align 4
@busy = internal global i32 0, align 64
@started = internal global i32 1, align 4
@job = internal global %struct.Job zeroinitializer, align 8
@pending = internal global i32 0, align 64
@mailboxes = internal global [256 x %struct.Mailbox] zeroinitializer, align 256
@turns = internal global i32 1024, align 4
@set_mask = internal global i32 0, align 4

define void @tw_parallel(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  %all.i = alloca %struct.Signals, align 1
  %old.i = alloca %struct.Signals, align 1
  %thread.i = alloca i64, align 8
  %cmp.not = icmp sgt i64 %end, %first
  br i1 %cmp.not, label %if.end, label %cleanup.cont

if.end:
  %tobool.not = icmp eq i32 %wanted, 0
  %0 = load i32, ptr @threads, align 4
  %cond = select i1 %tobool.not, i32 %0, i32 %wanted
  %1 = tail call i32 @llvm.smin.i32(i32 %cond, i32 256)
  %spec.store.select = sext i32 %1 to i64
  %sub = sub nsw i64 %end, %first
  %spec.select = tail call i64 @llvm.smin.i64(i64 %sub, i64 %spec.store.select)
  %cmp10 = icmp slt i64 %spec.select, 2
  br i1 %cmp10, label %if.then13, label %lor.lhs.false

lor.lhs.false:
  %2 = atomicrmw xchg ptr @busy, i32 1 acquire, align 64
  %tobool12.not = icmp eq i32 %2, 0
  br i1 %tobool12.not, label %if.end14, label %if.then13

if.then13:
  tail call void %body(ptr %closure, i64 %first, i64 %end)
  br label %cleanup.cont

if.end14:
  %conv15 = trunc nuw nsw i64 %spec.select to i32
  %3 = load i32, ptr @started, align 4
  %cmp.not.i = icmp slt i32 %3, %conv15
  br i1 %cmp.not.i, label %if.end.i, label %ensure.exit

if.end.i:
  %call.i = call i32 @sigfillset(ptr %all.i)
  %4 = load i32, ptr @set_mask, align 4
  %call1.i = call i32 @pthread_sigmask(i32 %4, ptr %all.i, ptr %old.i)
  %5 = load i32, ptr @started, align 4
  %cmp214.i = icmp slt i32 %5, %conv15
  br i1 %cmp214.i, label %for.body.i, label %for.end.i

for.body.i:
  %6 = phi i32 [ %inc.i, %if.end7.i ], [ %5, %if.end.i ]
  %idxprom.i = sext i32 %6 to i64
  %arrayidx.i = getelementptr inbounds [256 x %struct.Mailbox], ptr @mailboxes, i64 0, i64 %idxprom.i
  %taken.i = getelementptr inbounds i8, ptr %arrayidx.i, i64 8
  store i32 4, ptr %taken.i, align 8
  %mutex.i = getelementptr inbounds i8, ptr %arrayidx.i, i64 64
  %call3.i = call i32 @pthread_mutex_init(ptr %mutex.i, ptr null)
  %condition.i = getelementptr inbounds i8, ptr %arrayidx.i, i64 128
  %call4.i = call i32 @pthread_cond_init(ptr %condition.i, ptr null)
  %7 = load i32, ptr @started, align 4
  %conv.i = sext i32 %7 to i64
  %8 = inttoptr i64 %conv.i to ptr
  %call5.i = call i32 @pthread_create(ptr %thread.i, ptr null, ptr @worker, ptr %8)
  %tobool.not.i = icmp eq i32 %call5.i, 0
  br i1 %tobool.not.i, label %if.end7.i, label %for.end.critedge.i

if.end7.i:
  %9 = load i64, ptr %thread.i, align 8
  %call8.i = call i32 @pthread_detach(i64 %9)
  %10 = load i32, ptr @started, align 4
  %inc.i = add nsw i32 %10, 1
  store i32 %inc.i, ptr @started, align 4
  %cmp2.i = icmp slt i32 %inc.i, %conv15
  br i1 %cmp2.i, label %for.body.i, label %for.end.i

for.end.critedge.i:
  br label %for.end.i

for.end.i:
  %11 = load i32, ptr @set_mask, align 4
  %call10.i = call i32 @pthread_sigmask(i32 %11, ptr %old.i, ptr null)
  br label %ensure.exit

ensure.exit:
  %12 = load i32, ptr @started, align 4
  %conv16 = sext i32 %12 to i64
  %spec.select95 = call i64 @llvm.smin.i64(i64 %spec.select, i64 %conv16)
  store ptr %body, ptr @job, align 8
  store ptr %closure, ptr getelementptr inbounds (i8, ptr @job, i64 8), align 8
  store i64 %first, ptr getelementptr inbounds (i8, ptr @job, i64 16), align 8
  store i64 %sub, ptr getelementptr inbounds (i8, ptr @job, i64 24), align 8
  store i64 %spec.select95, ptr getelementptr inbounds (i8, ptr @job, i64 32), align 8
  store ptr null, ptr getelementptr inbounds (i8, ptr @job, i64 40), align 8
  %conv28 = trunc i64 %spec.select95 to i32
  %mul = shl i32 %conv28, 2
  store atomic i32 %mul, ptr @pending release, align 64
  store atomic i32 0, ptr getelementptr inbounds (i8, ptr @mailboxes, i64 8) release, align 8
  %cmp3099 = icmp sgt i64 %spec.select95, 1
  br i1 %cmp3099, label %for.body, label %for.cond43.preheader

for.cond43.preheader:
  %cmp44101 = icmp sgt i32 %12, 0
  br i1 %cmp44101, label %for.body47.preheader, label %for.cond51.preheader

for.body47.preheader:
  %smax = call i64 @llvm.smax.i64(i64 %spec.select95, i64 1)
  br label %for.body47

for.body:
  %k.0100 = phi i64 [ %inc, %if.end41 ], [ 1, %ensure.exit ]
  %arrayidx = getelementptr inbounds [256 x %struct.Mailbox], ptr @mailboxes, i64 0, i64 %k.0100
  %taken = getelementptr inbounds i8, ptr %arrayidx, i64 8
  store atomic i32 0, ptr %taken release, align 8
  %13 = atomicrmw add ptr %arrayidx, i32 1 seq_cst, align 256
  %sleeps = getelementptr inbounds i8, ptr %arrayidx, i64 4
  %14 = load atomic i32, ptr %sleeps seq_cst, align 4
  %tobool36.not = icmp eq i32 %14, 0
  br i1 %tobool36.not, label %if.end41, label %if.then37

if.then37:
  %mutex = getelementptr inbounds i8, ptr %arrayidx, i64 64
  %call = call i32 @pthread_mutex_lock(ptr %mutex)
  %condition = getelementptr inbounds i8, ptr %arrayidx, i64 128
  %call38 = call i32 @pthread_cond_signal(ptr %condition)
  %call40 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %if.end41

if.end41:
  %inc = add nuw nsw i64 %k.0100, 1
  %exitcond.not = icmp eq i64 %inc, %spec.select95
  br i1 %exitcond.not, label %for.cond43.preheader, label %for.body

for.cond51.preheader:
  %15 = load atomic i32, ptr @pending acquire, align 64
  %tobool53.not104 = icmp eq i32 %15, 0
  br i1 %tobool53.not104, label %for.cond.cleanup54, label %for.body55

for.body47:
  %k42.0102 = phi i64 [ %inc49, %take.exit ], [ 0, %for.body47.preheader ]
  %taken1.i = getelementptr inbounds [256 x %struct.Mailbox], ptr @mailboxes, i64 0, i64 %k42.0102, i32 2
  %16 = load atomic i32, ptr %taken1.i monotonic, align 8
  %cmp.i = icmp ugt i32 %16, 3
  br i1 %cmp.i, label %take.exit, label %for.cond.preheader.i

for.cond.preheader.i:
  %17 = atomicrmw add ptr %taken1.i, i32 1 acquire, align 4
  %cmp39.i = icmp ult i32 %17, 4
  br i1 %cmp39.i, label %for.body.i96, label %for.cond.cleanup.i

for.cond.cleanup.loopexit.i:
  %inc.neg.i = xor i32 %count.010.i, -1
  br label %for.cond.cleanup.i

for.cond.cleanup.i:
  %count.0.lcssa.neg.i = phi i32 [ 0, %for.cond.preheader.i ], [ %inc.neg.i, %for.cond.cleanup.loopexit.i ]
  %18 = atomicrmw add ptr @pending, i32 %count.0.lcssa.neg.i release, align 64
  br label %take.exit

for.body.i96:
  %19 = phi i32 [ %20, %for.body.i96 ], [ %17, %for.cond.preheader.i ]
  %count.010.i = phi i32 [ %inc.i98, %for.body.i96 ], [ 0, %for.cond.preheader.i ]
  %conv.i97 = zext nneg i32 %19 to i64
  call void @tw_chunk(ptr @job, i64 %k42.0102, i64 %conv.i97)
  %inc.i98 = add i32 %count.010.i, 1
  %20 = atomicrmw add ptr %taken1.i, i32 1 acquire, align 4
  %cmp3.i = icmp ult i32 %20, 4
  br i1 %cmp3.i, label %for.body.i96, label %for.cond.cleanup.loopexit.i

take.exit:
  %inc49 = add nuw nsw i64 %k42.0102, 1
  %exitcond106.not = icmp eq i64 %inc49, %smax
  br i1 %exitcond106.not, label %for.cond51.preheader, label %for.body47

for.cond.cleanup54:
  store atomic i32 0, ptr @busy release, align 64
  br label %cleanup.cont

for.body55:
  %turn.0105 = phi i32 [ %inc62, %for.inc61 ], [ 1, %for.cond51.preheader ]
  call void @tw_pause()
  %21 = load i32, ptr @turns, align 4
  %cmp56 = icmp sgt i32 %turn.0105, %21
  br i1 %cmp56, label %if.then58, label %for.inc61

if.then58:
  %call59 = call i32 @sched_yield()
  br label %for.inc61

for.inc61:
  %inc62 = add nuw nsw i32 %turn.0105, 1
  %22 = load atomic i32, ptr @pending acquire, align 64
  %tobool53.not = icmp eq i32 %22, 0
  br i1 %tobool53.not, label %for.cond.cleanup54, label %for.body55

cleanup.cont:
  ret void
}

declare i32 @pthread_mutex_lock(ptr)

declare i32 @pthread_cond_signal(ptr)

declare i32 @pthread_mutex_unlock(ptr)

declare void @tw_pause()

declare i32 @sched_yield()

define void @tw_configure(i32 %number, i32 %waiting, i32 %how) {
entry:
  store i32 %number, ptr @threads, align 4
  store i32 %waiting, ptr @turns, align 4
  store i32 %how, ptr @set_mask, align 4
  ret void
}

define void @tw_reset() {
entry:
  tail call void @llvm.memset.p0.i64(ptr align 256 @mailboxes, i8 0, i64 65536, i1 false)
  store i32 1, ptr @started, align 4
  store i32 0, ptr @busy, align 64
  tail call void @tw_reset_heap()
  tail call void @tw_reset_openmp()
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

declare void @tw_reset_heap()

declare void @tw_reset_openmp()

declare i32 @sigfillset(ptr)

declare i32 @pthread_sigmask(i32, ptr, ptr)

declare i32 @pthread_mutex_init(ptr, ptr)

declare i32 @pthread_cond_init(ptr, ptr)

declare i32 @pthread_create(ptr, ptr, ptr, ptr)

define internal ptr @worker(ptr %number) {
entry:
  %0 = ptrtoint ptr %number to i64
  %arrayidx = getelementptr inbounds [256 x %struct.Mailbox], ptr @mailboxes, i64 0, i64 %0
  %1 = load i32, ptr @turns, align 4
  %mutex = getelementptr inbounds i8, ptr %arrayidx, i64 64
  %sleeps = getelementptr inbounds i8, ptr %arrayidx, i64 4
  %condition = getelementptr inbounds i8, ptr %arrayidx, i64 128
  %taken1.i = getelementptr inbounds [256 x %struct.Mailbox], ptr @mailboxes, i64 0, i64 %0, i32 2
  %smax = tail call i32 @llvm.smax.i32(i32 %1, i32 0)
  br label %for.cond

for.cond:
  %last.0 = phi i32 [ 0, %entry ], [ %now.0, %for.cond.backedge ]
  br label %for.cond1

for.cond1:
  %turn.0 = phi i32 [ 0, %for.cond ], [ %inc, %for.body ]
  %2 = load atomic i32, ptr %arrayidx acquire, align 256
  %cmp = icmp eq i32 %2, %last.0
  br i1 %cmp, label %for.body, label %cleanup

for.body:
  tail call void @tw_pause()
  %inc = add nuw i32 %turn.0, 1
  %exitcond.not = icmp eq i32 %turn.0, %smax
  br i1 %exitcond.not, label %if.end, label %for.cond1

if.end:
  %call = tail call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %sleeps seq_cst, align 4
  %3 = load atomic i32, ptr %arrayidx seq_cst, align 256
  %cmp537 = icmp eq i32 %3, %last.0
  br i1 %cmp537, label %while.body, label %while.end

while.body:
  %call7 = tail call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  %4 = load atomic i32, ptr %arrayidx seq_cst, align 256
  %cmp5 = icmp eq i32 %4, %last.0
  br i1 %cmp5, label %while.body, label %while.end

while.end:
  %.lcssa36 = phi i32 [ %3, %if.end ], [ %4, %while.body ]
  store atomic i32 0, ptr %sleeps seq_cst, align 4
  %call11 = tail call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %cleanup

cleanup:
  %now.0 = phi i32 [ %.lcssa36, %while.end ], [ %2, %for.cond1 ]
  %5 = load atomic i32, ptr %taken1.i monotonic, align 8
  %cmp.i = icmp ugt i32 %5, 3
  br i1 %cmp.i, label %take.exit, label %for.cond.preheader.i

for.cond.preheader.i:
  %6 = atomicrmw add ptr %taken1.i, i32 1 acquire, align 4
  %cmp39.i = icmp ult i32 %6, 4
  br i1 %cmp39.i, label %for.body.i, label %for.cond.cleanup.i

for.cond.cleanup.loopexit.i:
  %inc.neg.i = xor i32 %count.010.i, -1
  br label %for.cond.cleanup.i

for.cond.cleanup.i:
  %count.0.lcssa.neg.i = phi i32 [ 0, %for.cond.preheader.i ], [ %inc.neg.i, %for.cond.cleanup.loopexit.i ]
  %7 = atomicrmw add ptr @pending, i32 %count.0.lcssa.neg.i release, align 64
  br label %take.exit

for.body.i:
  %8 = phi i32 [ %9, %for.body.i ], [ %6, %for.cond.preheader.i ]
  %count.010.i = phi i32 [ %inc.i, %for.body.i ], [ 0, %for.cond.preheader.i ]
  %conv.i = zext nneg i32 %8 to i64
  tail call void @tw_chunk(ptr @job, i64 %0, i64 %conv.i)
  %inc.i = add i32 %count.010.i, 1
  %9 = atomicrmw add ptr %taken1.i, i32 1 acquire, align 4
  %cmp3.i = icmp ult i32 %9, 4
  br i1 %cmp3.i, label %for.body.i, label %for.cond.cleanup.loopexit.i

take.exit:
  %10 = load atomic i32, ptr getelementptr inbounds (i8, ptr @mailboxes, i64 8) monotonic, align 8
  %cmp.i22 = icmp ugt i32 %10, 3
  br i1 %cmp.i22, label %for.cond.backedge, label %for.cond.preheader.i23

for.cond.backedge:
  br label %for.cond

for.cond.preheader.i23:
  %11 = atomicrmw add ptr getelementptr inbounds (i8, ptr @mailboxes, i64 8), i32 1 acquire, align 4
  %cmp39.i24 = icmp ult i32 %11, 4
  br i1 %cmp39.i24, label %for.body.i27, label %for.cond.cleanup.i25

for.cond.cleanup.loopexit.i32:
  %inc.neg.i33 = xor i32 %count.010.i28, -1
  br label %for.cond.cleanup.i25

for.cond.cleanup.i25:
  %count.0.lcssa.neg.i26 = phi i32 [ 0, %for.cond.preheader.i23 ], [ %inc.neg.i33, %for.cond.cleanup.loopexit.i32 ]
  %12 = atomicrmw add ptr @pending, i32 %count.0.lcssa.neg.i26 release, align 64
  br label %for.cond.backedge

for.body.i27:
  %13 = phi i32 [ %14, %for.body.i27 ], [ %11, %for.cond.preheader.i23 ]
  %count.010.i28 = phi i32 [ %inc.i30, %for.body.i27 ], [ 0, %for.cond.preheader.i23 ]
  %conv.i29 = zext nneg i32 %13 to i64
  tail call void @tw_chunk(ptr @job, i64 0, i64 %conv.i29)
  %inc.i30 = add i32 %count.010.i28, 1
  %14 = atomicrmw add ptr getelementptr inbounds (i8, ptr @mailboxes, i64 8), i32 1 acquire, align 4
  %cmp3.i31 = icmp ult i32 %14, 4
  br i1 %cmp3.i31, label %for.body.i27, label %for.cond.cleanup.loopexit.i32
}

declare i32 @pthread_detach(i64)

declare i32 @pthread_cond_wait(ptr, ptr)

declare void @tw_chunk(ptr, i64, i64)

declare i64 @llvm.smin.i64(i64, i64)

declare i32 @llvm.smin.i32(i32, i32)

declare i32 @llvm.smax.i32(i32, i32)

declare i64 @llvm.smax.i64(i64, i64)
