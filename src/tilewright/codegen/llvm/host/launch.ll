; launch.c 1369dc4cd75cafcc20f775a6689d8d9d clang 19

%struct.Config = type { [3 x i32], [3 x i32], i32, i64, ptr, i32 }

@follows = internal constant [9 x i64] [i64 6, i64 1, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0], align 16

define ptr @tw_launch(ptr %self, ptr %arguments, i64 %count) {
entry:
  %values = alloca [512 x i64], align 16
  %config = alloca %struct.Config, align 8
  %parameters = alloca [512 x ptr], align 16
  %call = tail call ptr @PyBytes_AsString(ptr %self)
  %0 = load i64, ptr %call, align 8
  %arrayidx1 = getelementptr inbounds i8, ptr %call, i64 8
  %1 = load i64, ptr %arrayidx1, align 8
  %arrayidx2 = getelementptr inbounds i8, ptr %call, i64 16
  %2 = load i64, ptr %arrayidx2, align 8
  %arrayidx3 = getelementptr inbounds i8, ptr %call, i64 32
  %3 = load i64, ptr %arrayidx3, align 8
  %arrayidx4 = getelementptr inbounds i8, ptr %call, i64 24
  %4 = load i64, ptr %arrayidx4, align 8
  %5 = inttoptr i64 %4 to ptr
  %cmp.not = icmp eq i64 %count, 2
  br i1 %cmp.not, label %lor.lhs.false, label %if.then

lor.lhs.false:
  %arrayidx5 = getelementptr inbounds i8, ptr %arguments, i64 8
  %6 = load ptr, ptr %arrayidx5, align 8
  %call6 = tail call i64 @PyTuple_Size(ptr %6)
  %cmp7.not = icmp eq i64 %call6, %0
  br i1 %cmp7.not, label %if.end, label %if.then

if.then:
  %call8 = tail call i32 @PyErr_BadArgument()
  br label %cleanup65

if.end:
  %7 = load ptr, ptr %arguments, align 8
  %call10 = tail call i64 @PyLong_AsUnsignedLongLong(ptr %7)
  %cmp11100.not = icmp eq i64 %0, 0
  br i1 %cmp11100.not, label %for.cond.cleanup, label %for.body

for.cond.cleanup:
  %all.0.lcssa = phi i64 [ 0, %if.end ], [ %or, %for.body ]
  %call17 = tail call ptr @PyErr_Occurred()
  %tobool.not = icmp eq ptr %call17, null
  br i1 %tobool.not, label %if.end19, label %cleanup

for.body:
  %all.0102 = phi i64 [ %or, %for.body ], [ 0, %if.end ]
  %i.0101 = phi i64 [ %inc, %for.body ], [ 0, %if.end ]
  %8 = load ptr, ptr %arrayidx5, align 8
  %call13 = tail call ptr @PyTuple_GetItem(ptr %8, i64 %i.0101)
  %call14 = tail call i64 @PyLong_AsUnsignedLongLong(ptr %call13)
  %arrayidx15 = getelementptr inbounds [512 x i64], ptr %values, i64 0, i64 %i.0101
  store i64 %call14, ptr %arrayidx15, align 8
  %or = or i64 %call14, %all.0102
  %inc = add nuw i64 %i.0101, 1
  %exitcond.not = icmp eq i64 %inc, %0
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body

if.end19:
  %and = and i64 %all.0.lcssa, %1
  %tobool20.not = icmp eq i64 %and, 0
  br i1 %tobool20.not, label %if.end23, label %cleanup.sink.split

if.end23:
  %call24 = tail call ptr @PyEval_SaveThread()
  %cmp26105.not = icmp eq i64 %2, 0
  br i1 %cmp26105.not, label %while.end, label %while.body.lr.ph

while.body.lr.ph:
  %add.ptr = getelementptr inbounds i8, ptr %call, i64 40
  %add.ptr25 = getelementptr inbounds i64, ptr %add.ptr, i64 %3
  %stream28 = getelementptr inbounds i8, ptr %config, i64 32
  %attributes = getelementptr inbounds i8, ptr %config, i64 40
  br label %while.body

while.body:
  %k.0107 = phi i64 [ 0, %while.body.lr.ph ], [ %inc55, %for.cond.cleanup33 ]
  %kernel.0106 = phi ptr [ %add.ptr25, %while.body.lr.ph ], [ %add.ptr54, %for.cond.cleanup33 ]
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %config, ptr align 8 %kernel.0106, i64 56, i1 false)
  store i64 %call10, ptr %stream28, align 8
  store ptr @follows, ptr %attributes, align 8
  %arrayidx31 = getelementptr inbounds i8, ptr %kernel.0106, i64 64
  %9 = load i64, ptr %arrayidx31, align 8
  %cmp32103.not = icmp eq i64 %9, 0
  br i1 %cmp32103.not, label %for.cond.cleanup33, label %for.body34

for.cond.cleanup33:
  %arrayidx31.le = getelementptr inbounds i8, ptr %kernel.0106, i64 64
  %arrayidx49 = getelementptr inbounds i8, ptr %kernel.0106, i64 56
  %10 = load i64, ptr %arrayidx49, align 8
  %call51 = call i32 %5(ptr %config, i64 %10, ptr %parameters, ptr null)
  %11 = load i64, ptr %arrayidx31.le, align 8
  %add53 = add i64 %11, 9
  %add.ptr54 = getelementptr inbounds i64, ptr %kernel.0106, i64 %add53
  %inc55 = add nuw i64 %k.0107, 1
  %cmp26 = icmp ult i64 %inc55, %2
  %tobool27.not = icmp eq i32 %call51, 0
  %12 = select i1 %cmp26, i1 %tobool27.not, i1 false
  br i1 %12, label %while.body, label %while.end.loopexit

for.body34:
  %i29.0104 = phi i64 [ %inc47, %cond.end43 ], [ 0, %while.body ]
  %add = add i64 %i29.0104, 9
  %arrayidx35 = getelementptr inbounds i64, ptr %kernel.0106, i64 %add
  %13 = load i64, ptr %arrayidx35, align 8
  %and36 = and i64 %13, 1
  %tobool37.not = icmp eq i64 %and36, 0
  %cond = select i1 %tobool37.not, ptr %values, ptr %call
  %shr = lshr i64 %13, 2
  %add.ptr38 = getelementptr inbounds i64, ptr %cond, i64 %shr
  %and39 = and i64 %13, 2
  %tobool40.not = icmp eq i64 %and39, 0
  br i1 %tobool40.not, label %cond.end43, label %cond.true41

cond.true41:
  %14 = load i64, ptr %add.ptr38, align 8
  %15 = inttoptr i64 %14 to ptr
  br label %cond.end43

cond.end43:
  %cond44 = phi ptr [ %15, %cond.true41 ], [ %add.ptr38, %for.body34 ]
  %arrayidx45 = getelementptr inbounds [512 x ptr], ptr %parameters, i64 0, i64 %i29.0104
  store ptr %cond44, ptr %arrayidx45, align 8
  %inc47 = add nuw i64 %i29.0104, 1
  %16 = load i64, ptr %arrayidx31, align 8
  %cmp32 = icmp ult i64 %inc47, %16
  br i1 %cmp32, label %for.body34, label %for.cond.cleanup33

while.end.loopexit:
  %17 = shl i64 %inc55, 32
  %18 = zext i32 %call51 to i64
  br label %while.end

while.end:
  %k.0.lcssa = phi i64 [ 0, %if.end23 ], [ %17, %while.end.loopexit ]
  %status.0.lcssa = phi i64 [ 0, %if.end23 ], [ %18, %while.end.loopexit ]
  %tobool27.not.lcssa = phi i1 [ true, %if.end23 ], [ %tobool27.not, %while.end.loopexit ]
  call void @PyEval_RestoreThread(ptr %call24)
  %or58 = or disjoint i64 %k.0.lcssa, %status.0.lcssa
  %cond61 = select i1 %tobool27.not.lcssa, i64 0, i64 %or58
  br label %cleanup.sink.split

cleanup.sink.split:
  %cond61.sink = phi i64 [ %cond61, %while.end ], [ -1, %if.end19 ]
  %call62 = call ptr @PyLong_FromLongLong(i64 %cond61.sink)
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ null, %for.cond.cleanup ], [ %call62, %cleanup.sink.split ]
  br label %cleanup65

cleanup65:
  %retval.1 = phi ptr [ null, %if.then ], [ %retval.0, %cleanup ]
  ret ptr %retval.1
}

declare ptr @PyBytes_AsString(ptr)

declare i64 @PyTuple_Size(ptr)

declare i32 @PyErr_BadArgument()

declare i64 @PyLong_AsUnsignedLongLong(ptr)

declare ptr @PyTuple_GetItem(ptr, i64)

declare ptr @PyErr_Occurred()

declare ptr @PyLong_FromLongLong(i64)

declare ptr @PyEval_SaveThread()

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

declare void @PyEval_RestoreThread(ptr)
