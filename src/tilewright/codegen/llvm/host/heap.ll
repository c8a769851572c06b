; heap.c 40426d844c6ca45c59b1c538322a5949 clang 19

%struct.Slot = type { ptr, i64 }

@locked = internal global i32 0, align 64
@slots = internal global [32 x %struct.Slot] zeroinitializer, align 16
@kept = internal global i64 0, align 8

define void @tw_reset_heap() {
entry:
  store i32 0, ptr @locked, align 64
  ret void
}

define ptr @tw_alloc(i64 %wanted) {
entry:
  %0 = atomicrmw xchg ptr @locked, i32 1 acquire, align 64
  %tobool.not1.i = icmp eq i32 %0, 0
  br i1 %tobool.not1.i, label %for.body.preheader, label %while.body.i

for.body.preheader:
  br label %for.body

while.body.i:
  tail call void @tw_pause()
  %1 = atomicrmw xchg ptr @locked, i32 1 acquire, align 64
  %tobool.not.i = icmp eq i32 %1, 0
  br i1 %tobool.not.i, label %for.body.preheader, label %while.body.i

for.cond.cleanup:
  %tobool7.not = icmp eq ptr %best.1, null
  br i1 %tobool7.not, label %if.end16, label %land.lhs.true8

for.body:
  %best.052 = phi ptr [ %best.1, %for.inc ], [ null, %for.body.preheader ]
  %slot.0.idx51 = phi i64 [ %slot.0.add, %for.inc ], [ 0, %for.body.preheader ]
  %slot.0.ptr53 = getelementptr inbounds i8, ptr @slots, i64 %slot.0.idx51
  %2 = load ptr, ptr %slot.0.ptr53, align 16
  %tobool.not = icmp eq ptr %2, null
  br i1 %tobool.not, label %for.inc, label %land.lhs.true

land.lhs.true:
  %size = getelementptr inbounds i8, ptr %slot.0.ptr53, i64 8
  %3 = load i64, ptr %size, align 8
  %cmp1.not = icmp ult i64 %3, %wanted
  br i1 %cmp1.not, label %for.inc, label %land.lhs.true2

land.lhs.true2:
  %tobool3.not = icmp eq ptr %best.052, null
  br i1 %tobool3.not, label %if.then, label %lor.lhs.false

lor.lhs.false:
  %size5 = getelementptr inbounds i8, ptr %best.052, i64 8
  %4 = load i64, ptr %size5, align 8
  %cmp6 = icmp ult i64 %3, %4
  br i1 %cmp6, label %if.then, label %for.inc

if.then:
  br label %for.inc

for.inc:
  %best.1 = phi ptr [ %slot.0.ptr53, %if.then ], [ %best.052, %lor.lhs.false ], [ %best.052, %land.lhs.true ], [ %best.052, %for.body ]
  %slot.0.add = add nuw nsw i64 %slot.0.idx51, 16
  %cmp = icmp ult i64 %slot.0.idx51, 496
  br i1 %cmp, label %for.body, label %for.cond.cleanup

land.lhs.true8:
  %size9 = getelementptr inbounds i8, ptr %best.1, i64 8
  %5 = load i64, ptr %size9, align 8
  %mul = shl i64 %wanted, 1
  %add = add i64 %mul, 65536
  %cmp10.not = icmp ugt i64 %5, %add
  br i1 %cmp10.not, label %if.end16, label %if.then11

if.then11:
  %6 = load ptr, ptr %best.1, align 8
  store ptr null, ptr %best.1, align 8
  %7 = load i64, ptr @kept, align 8
  %sub = sub i64 %7, %5
  store i64 %sub, ptr @kept, align 8
  store atomic i32 0, ptr @locked release, align 64
  br label %cleanup30

if.end16:
  store atomic i32 0, ptr @locked release, align 64
  %cmp17 = icmp slt i64 %wanted, 0
  br i1 %cmp17, label %cleanup30, label %if.end19

if.end19:
  %add20 = add nuw i64 %wanted, 128
  %call = tail call ptr @malloc(i64 %add20)
  %tobool21.not = icmp eq ptr %call, null
  br i1 %tobool21.not, label %cleanup30, label %if.end23

if.end23:
  %8 = ptrtoint ptr %call to i64
  %sub25 = sub i64 0, %8
  %rem = and i64 %sub25, 63
  %add.ptr = getelementptr inbounds i8, ptr %call, i64 %rem
  %add.ptr26 = getelementptr inbounds i8, ptr %add.ptr, i64 64
  %add.ptr27 = getelementptr inbounds i8, ptr %add.ptr, i64 48
  store ptr %call, ptr %add.ptr27, align 8
  %size29 = getelementptr inbounds i8, ptr %add.ptr, i64 56
  store i64 %wanted, ptr %size29, align 8
  br label %cleanup30

cleanup30:
  %retval.1 = phi ptr [ %6, %if.then11 ], [ null, %if.end16 ], [ %add.ptr26, %if.end23 ], [ null, %if.end19 ]
  ret ptr %retval.1
}

declare ptr @malloc(i64)

define void @tw_free(ptr %block) {
entry:
  %tobool.not = icmp eq ptr %block, null
  br i1 %tobool.not, label %cleanup.cont, label %if.end

if.end:
  %add.ptr = getelementptr inbounds i8, ptr %block, i64 -16
  %0 = atomicrmw xchg ptr @locked, i32 1 acquire, align 64
  %tobool.not1.i = icmp eq i32 %0, 0
  br i1 %tobool.not1.i, label %lock.exit, label %while.body.i

while.body.i:
  tail call void @tw_pause()
  %1 = atomicrmw xchg ptr @locked, i32 1 acquire, align 64
  %tobool.not.i = icmp eq i32 %1, 0
  br i1 %tobool.not.i, label %lock.exit, label %while.body.i

lock.exit:
  %2 = load i64, ptr @kept, align 8
  %size = getelementptr inbounds i8, ptr %block, i64 -8
  %3 = load i64, ptr %size, align 8
  %add = add i64 %3, %2
  %cmp = icmp ult i64 %add, 268435457
  br i1 %cmp, label %for.body, label %if.end12

for.cond:
  %slot.0.add = add nuw nsw i64 %slot.0.idx25, 16
  %cmp2 = icmp ugt i64 %slot.0.idx25, 495
  br i1 %cmp2, label %if.end12, label %for.body

for.body:
  %slot.0.idx25 = phi i64 [ %slot.0.add, %for.cond ], [ 0, %lock.exit ]
  %slot.0.ptr26 = getelementptr inbounds i8, ptr @slots, i64 %slot.0.idx25
  %4 = load ptr, ptr %slot.0.ptr26, align 16
  %tobool4.not = icmp eq ptr %4, null
  br i1 %tobool4.not, label %if.then5, label %for.cond

if.then5:
  %slot.0.ptr26.le = getelementptr inbounds i8, ptr @slots, i64 %slot.0.idx25
  store ptr %block, ptr %slot.0.ptr26.le, align 8
  %5 = load i64, ptr %size, align 8
  %size8 = getelementptr inbounds i8, ptr %slot.0.ptr26.le, i64 8
  store i64 %5, ptr %size8, align 8
  %6 = load i64, ptr %size, align 8
  %add10 = add i64 %6, %2
  store i64 %add10, ptr @kept, align 8
  store atomic i32 0, ptr @locked release, align 64
  br label %cleanup.cont

if.end12:
  store atomic i32 0, ptr @locked release, align 64
  %7 = load ptr, ptr %add.ptr, align 8
  tail call void @free(ptr %7)
  br label %cleanup.cont

cleanup.cont:
  ret void
}

declare void @free(ptr)

declare void @tw_pause()
