// Where there are no POSIX threads, every loop runs in its caller.

#include "host.h"

void tw_alone(Body body, void *closure, i64 first, i64 end, i32 wanted);

void tw_parallel(Body body, void *closure, i64 first, i64 end, i32 wanted) {
    tw_alone(body, closure, first, end, wanted);
}

void tw_configure(i32 number, i32 waiting, i32 how) { (void)number, (void)waiting, (void)how; }

void tw_reset(void) { tw_reset_heap(); }
