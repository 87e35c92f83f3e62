/* SPDX-License-Identifier: Apache-2.0 */
/* See sweep.h. */
#include "sweep.h"

struct sweep_fault sweep_now;

static bool is_in(const enum dbl_fn *list, enum dbl_fn fn)
{
    while (*list != DBL_FN_COUNT && *list != fn)
        list++;
    return *list == fn;
}

void sweep_arm(const struct sweep_fault *f)
{
    if (f->event)
        dbl_fail_event(f->fn, f->n, 1, f->code);
    else
        dbl_fail(f->fn, f->n, f->times, f->code);
}

static unsigned all_n(const struct sweep *s, struct sweep_fault f)
{
    for (f.n = 1;; f.n++) {
        sweep_now = f;
        if (!s->session(&f))
            return f.n - 1;
    }
}

unsigned sweep_run(const struct sweep *s)
{
    static const cl_int codes[] = {CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY, DBL_NULL_SUCCESS};
    unsigned total = 0;

    for (int driven = 1; driven >= 0; driven--) {
        for (enum dbl_fn fn = 0; fn < DBL_FN_COUNT; fn++) {
            struct sweep_fault f = {.fn = fn, .times = 1, .caller_driven = driven};

            for (int c = 0; c < (is_in(s->makers, fn) ? 3 : 1); c++) {
                f.code = codes[c];
                total += all_n(s, f);
            }
            if (is_in(s->commands, fn)) {
                f.event = true;
                f.code = -5; /* CL_OUT_OF_RESOURCES, as the status of an event */
                total += all_n(s, f);
            }
            if (s->unanswered && fn == DBL_GetEventInfo) {
                f.code = CL_OUT_OF_HOST_MEMORY;
                f.times = 3;
                total += all_n(s, f);
            }
        }
    }
    return total;
}
