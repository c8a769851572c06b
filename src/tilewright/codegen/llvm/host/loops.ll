; loops.c f88a8813de7f1ef8c9d141ed0de834f4 clang 19

%struct.Call = type { ptr, ptr, ptr }

define void @tw_chunk(ptr %job, i64 %part, i64 %chunk) {
entry:
  %count = getelementptr inbounds i8, ptr %job, i64 24
  %0 = load i64, ptr %count, align 8
  %parts = getelementptr inbounds i8, ptr %job, i64 32
  %1 = load i64, ptr %parts, align 8
  %div = udiv i64 %0, %1
  %rem = urem i64 %0, %1
  %cmp = icmp ugt i64 %rem, %part
  %conv3 = zext i1 %cmp to i64
  %add = add i64 %div, %conv3
  %mul = mul i64 %div, %part
  %cond = tail call i64 @llvm.umin.i64(i64 %rem, i64 %part)
  %add4 = add i64 %cond, %mul
  %mul5 = mul i64 %add, %chunk
  %div634 = lshr i64 %mul5, 2
  %add7 = add i64 %div634, %add4
  %add8 = add i64 %chunk, 1
  %mul9 = mul i64 %add, %add8
  %div1035 = lshr i64 %mul9, 2
  %add11 = add i64 %div1035, %add4
  %cmp12 = icmp ult i64 %add7, %add11
  br i1 %cmp12, label %if.then, label %if.end

if.then:
  %2 = load ptr, ptr %job, align 8
  %closure = getelementptr inbounds i8, ptr %job, i64 8
  %3 = load ptr, ptr %closure, align 8
  %first = getelementptr inbounds i8, ptr %job, i64 16
  %4 = load i64, ptr %first, align 8
  %add14 = add nsw i64 %4, %add7
  %add16 = add nsw i64 %4, %add11
  tail call void %2(ptr %3, i64 %add14, i64 %add16)
  br label %if.end

if.end:
  ret void
}

define void @tw_alone(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  tail call void %body(ptr %closure, i64 %first, i64 %end)
  ret void
}

define i32 @tw_repeat(ptr %program, ptr %arrays, ptr %scalars, i64 %times) {
entry:
  %cmp3 = icmp sgt i64 %times, 0
  br i1 %cmp3, label %for.body, label %for.cond.cleanup

for.cond.cleanup:
  %failed.0.lcssa = phi i32 [ 0, %entry ], [ %or, %for.body ]
  ret i32 %failed.0.lcssa

for.body:
  %i.05 = phi i64 [ %inc, %for.body ], [ 0, %entry ]
  %failed.04 = phi i32 [ %or, %for.body ], [ 0, %entry ]
  %call = tail call i32 %program(ptr %arrays, ptr %scalars)
  %or = or i32 %call, %failed.04
  %inc = add nuw nsw i64 %i.05, 1
  %exitcond.not = icmp eq i64 %inc, %times
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body
}

define i64 @tw_sequence(ptr %calls, i64 %count) {
entry:
  %cmp.not11 = icmp sgt i64 %count, 0
  br i1 %cmp.not11, label %for.body, label %cleanup

for.body:
  %i.012 = phi i64 [ %inc, %for.inc ], [ 0, %entry ]
  %arrayidx = getelementptr inbounds %struct.Call, ptr %calls, i64 %i.012
  %0 = load ptr, ptr %arrayidx, align 8
  %arrays = getelementptr inbounds i8, ptr %arrayidx, i64 8
  %1 = load ptr, ptr %arrays, align 8
  %scalars = getelementptr inbounds i8, ptr %arrayidx, i64 16
  %2 = load ptr, ptr %scalars, align 8
  %call = tail call i32 %0(ptr %1, ptr %2)
  %tobool.not = icmp eq i32 %call, 0
  %inc = add nuw nsw i64 %i.012, 1
  br i1 %tobool.not, label %for.inc, label %cleanup

for.inc:
  %exitcond.not = icmp eq i64 %inc, %count
  br i1 %exitcond.not, label %cleanup, label %for.body

cleanup:
  %spec.select = phi i64 [ 0, %entry ], [ 0, %for.inc ], [ %inc, %for.body ]
  ret i64 %spec.select
}

declare i64 @llvm.umin.i64(i64, i64)
