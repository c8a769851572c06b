; no_threads.c f9c9cfe3b7a9bf2f439f07451308e239 clang 19

define void @tw_parallel(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted) {
entry:
  tail call void @tw_alone(ptr %body, ptr %closure, i64 %first, i64 %end, i32 %wanted)
  ret void
}

declare void @tw_alone(ptr, ptr, i64, i64, i32)

define void @tw_configure(i32 %number, i32 %waiting, i32 %how) {
entry:
  ret void
}

define void @tw_reset() {
entry:
  tail call void @tw_reset_heap()
  ret void
}

declare void @tw_reset_heap()
