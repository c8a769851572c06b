"""Scratch memory of compiled programs, in LLVM IR: blocks that were given back are kept.

``tw_alloc`` gives the smallest kept block that is large enough and not more than twice too large,
else a new one; ``tw_free`` keeps up to 32 blocks of together 256 MiB. A spin lock guards the slots.
"""

from __future__ import annotations

#: ``PAUSE`` stands for what a waiting thread does.
HEAP = """
; A block starts 64 bytes before what the program sees; there stand malloc's pointer and the size.
%slot = type { ptr, i64 }
@slots = internal global [32 x %slot] zeroinitializer, align 64
@kept = internal global i64 0
@memory.lock = internal global i32 0, align 64

define internal void @lock() {
entry:
  br label %try
try:
  %old = atomicrmw xchg ptr @memory.lock, i32 1 acquire
  %got = icmp eq i32 %old, 0
  br i1 %got, label %done, label %wait
wait:
  PAUSE
  br label %try
done:
  ret void
}

define internal void @unlock() {
  store atomic i32 0, ptr @memory.lock release, align 4
  ret void
}

define ptr @tw_alloc(i64 %wanted) {
entry:
  call void @lock()
  br label %look
look:                                   ; the smallest block that is large enough
  %i = phi i64 [ 0, %entry ], [ %i.next, %more ]
  %best = phi i64 [ -1, %entry ], [ %best.next, %more ]
  %best.size = phi i64 [ 9223372036854775807, %entry ], [ %size.next, %more ]
  %p.at = getelementptr [32 x %slot], ptr @slots, i64 0, i64 %i, i32 0
  %s.at = getelementptr [32 x %slot], ptr @slots, i64 0, i64 %i, i32 1
  %p = load ptr, ptr %p.at
  %s = load i64, ptr %s.at
  %there = icmp ne ptr %p, null
  %fits = icmp uge i64 %s, %wanted
  %better = icmp ult i64 %s, %best.size
  %a = and i1 %there, %fits
  %take = and i1 %a, %better
  br label %more
more:
  %best.next = select i1 %take, i64 %i, i64 %best
  %size.next = select i1 %take, i64 %s, i64 %best.size
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, 32
  br i1 %again, label %look, label %chosen
chosen:
  %none = icmp slt i64 %best.next, 0
  %double = shl i64 %wanted, 1
  %limit = add i64 %double, 65536
  %large = icmp ugt i64 %size.next, %limit
  %new = or i1 %none, %large
  br i1 %new, label %fresh, label %reuse
reuse:
  %q.at = getelementptr [32 x %slot], ptr @slots, i64 0, i64 %best.next, i32 0
  %q = load ptr, ptr %q.at
  store ptr null, ptr %q.at
  %k = load i64, ptr @kept
  %k.less = sub i64 %k, %size.next
  store i64 %k.less, ptr @kept
  call void @unlock()
  ret ptr %q
fresh:
  call void @unlock()
  %negative = icmp slt i64 %wanted, 0
  br i1 %negative, label %failed, label %call
call:
  %padded = add i64 %wanted, 128
  %raw = call ptr @malloc(i64 %padded)
  %null = icmp eq ptr %raw, null
  br i1 %null, label %failed, label %made
made:
  %address = ptrtoint ptr %raw to i64
  %over = add i64 %address, 127
  %start = and i64 %over, -64
  %skip = sub i64 %start, %address
  %block = getelementptr i8, ptr %raw, i64 %skip
  %raw.at = getelementptr i8, ptr %block, i64 -16
  %size.at = getelementptr i8, ptr %block, i64 -8
  store ptr %raw, ptr %raw.at
  store i64 %wanted, ptr %size.at
  ret ptr %block
failed:
  ret ptr null
}

define void @tw_free(ptr %block) {
entry:
  %null = icmp eq ptr %block, null
  br i1 %null, label %done, label %keep
keep:
  %size.at = getelementptr i8, ptr %block, i64 -8
  %size = load i64, ptr %size.at
  call void @lock()
  %k = load i64, ptr @kept
  %sum = add i64 %k, %size
  %full = icmp ugt i64 %sum, 268435456
  br i1 %full, label %release, label %look
look:
  %i = phi i64 [ 0, %keep ], [ %i.next, %more ]
  %p.at = getelementptr [32 x %slot], ptr @slots, i64 0, i64 %i, i32 0
  %p = load ptr, ptr %p.at
  %empty = icmp eq ptr %p, null
  br i1 %empty, label %put, label %more
more:
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, 32
  br i1 %again, label %look, label %release
put:
  %s.at = getelementptr [32 x %slot], ptr @slots, i64 0, i64 %i, i32 1
  store ptr %block, ptr %p.at
  store i64 %size, ptr %s.at
  store i64 %sum, ptr @kept
  call void @unlock()
  ret void
release:
  call void @unlock()
  %raw.at = getelementptr i8, ptr %block, i64 -16
  %raw = load ptr, ptr %raw.at
  call void @free(ptr %raw)
  ret void
done:
  ret void
}

declare ptr @malloc(i64)
declare void @free(ptr)
"""
