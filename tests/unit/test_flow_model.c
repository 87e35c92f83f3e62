/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of flow control when the application is slower than the peer, explored exhaustively:
 * every state that any order of events can reach, for windows of 1 to 4 packets and 1 to 3 slots.
 *
 *     peer writes -> [slot or spill] -> queue -> read -> held -> released -> device -> home (free)
 *                                                          \---- freed --------------> home
 *
 * CLB_FULL_BLOCK: the peer may write while fewer than `window` packets are unreleased. A payload
 * that finds no free slot spills to host memory, and so does every later payload of that stream
 * while a spilled one waits. A read moves a spilled packet into a free slot.
 *
 * A state is stuck when something waits to be read and nothing but the peer can do anything any
 * more. What is not the peer's (read, release, free, the device's end) only ever brings packets
 * forward, so a graph without stuck states delivers everything that was written, whatever the
 * order, as long as the application reads and gives back what it holds.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 2
#define WINDOW 4
#define STATES (1u << 21) /* of the hash set, a power of two */

enum kind { SLOT, SPILL };

struct stream {
    uint8_t n;            /* received and not read */
    uint8_t kind[WINDOW]; /* of each, oldest first */
    uint8_t seq[WINDOW];  /* how many packets were to be delivered before it, when it arrived */
    uint8_t held;         /* read and neither released nor freed */
    uint8_t device;       /* released: credit is back, the slot is not */
};

struct state {
    struct stream s[STREAMS];
    uint8_t free[STREAMS]; /* slots of each pool; one pool: only the first is used */
    uint8_t turn;          /* stream that the application reads next, if it reads in turn */
};

struct rules {
    int streams, window[STREAMS], slots[STREAMS];
    bool shared;       /* both streams use pool 0 */
    bool spill_behind; /* the rule: while a spilled packet waits, later payloads spill too */
    bool skip;         /* wrong on purpose: a read passes over a spilled packet */
    bool in_turn;      /* reads stream 0, then 1, ... and waits there without a deadline */
    int kept;          /* slots that the device keeps at most, 0 = no limit */
};

struct result {
    size_t states, stuck, disorder;
    unsigned max_spilled, max_queued;
};

struct explorer {
    const struct rules *r;
    struct state *queue; /* breadth first: also the list of all states */
    size_t head, len;
    uint32_t *set; /* index + 1 into queue, 0 = empty */
    struct result res;
    size_t successors; /* of the state at hand, the peer's not counted */
};

static uint8_t *pool(const struct rules *r, struct state *st, int i)
{
    return &st->free[r->shared ? 0 : i];
}

/* --- the hash set --- */

static uint64_t hash(const struct state *st)
{
    const unsigned char *b = (const unsigned char *)st;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < sizeof *st; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static void visit(struct explorer *x, const struct state *st)
{
    size_t at = hash(st) & (STATES - 1);

    while (x->set[at]) {
        if (memcmp(&x->queue[x->set[at] - 1], st, sizeof *st) == 0)
            return;
        at = (at + 1) & (STATES - 1);
    }
    cr_assert_lt(x->len, STATES / 2, "the model is larger than expected");
    x->queue[x->len++] = *st;
    x->set[at] = (uint32_t)x->len;
}

/* --- transitions --- */

static unsigned spilled(const struct stream *s)
{
    unsigned n = 0;

    for (int k = 0; k < s->n; k++)
        n += s->kind[k] == SPILL;
    return n;
}

static void peer_writes(struct explorer *x, const struct state *from, int i)
{
    struct state st = *from;
    struct stream *s = &st.s[i];
    uint8_t *free_slots = pool(x->r, &st, i);

    if (s->n + s->held >= x->r->window[i])
        return; /* no credit */
    if (*free_slots == 0 || (x->r->spill_behind && spilled(s) > 0)) {
        s->kind[s->n] = SPILL;
    } else {
        s->kind[s->n] = SLOT;
        --*free_slots;
    }
    s->seq[s->n] = s->n;
    s->n++;
    visit(x, &st);
}

static void application_reads(struct explorer *x, const struct state *from, int i)
{
    struct state st = *from;
    struct stream *s = &st.s[i];
    uint8_t *free_slots = pool(x->r, &st, i);
    int k = 0;

    while (x->r->skip && *free_slots == 0 && k < s->n - 1 && s->kind[k] == SPILL)
        k++;
    if (s->n == 0 || (s->kind[k] == SPILL && *free_slots == 0))
        return; /* AGAIN, or NOBUFS: nothing changes */
    x->res.disorder += s->seq[k] != 0;
    if (s->kind[k] == SPILL)
        --*free_slots;
    for (s->n--; k < s->n; k++) {
        s->kind[k] = s->kind[k + 1];
        s->seq[k] = s->seq[k + 1];
    }
    s->kind[s->n] = s->seq[s->n] = 0; /* one representation per state */
    for (k = 0; k < s->n; k++)
        if (s->seq[k] > 0)
            s->seq[k]--;
    s->held++;
    if (x->r->in_turn)
        st.turn = (uint8_t)((i + 1) % x->r->streams);
    x->successors++;
    visit(x, &st);
}

/* What the application holds is alike: any order of release and free is a sequence of these. */
static void give_back(struct explorer *x, const struct state *from, int i)
{
    struct state st = *from;

    if (from->s[i].held > 0) {
        st.s[i].held--;
        if (x->r->kept == 0 || st.s[i].device < x->r->kept) { /* released */
            st.s[i].device++;
            visit(x, &st);
            st.s[i].device--;
        }
        ++*pool(x->r, &st, i); /* freed */
        visit(x, &st);
        x->successors++;
    }
    if (from->s[i].device > 0) {
        st = *from;
        st.s[i].device--;
        ++*pool(x->r, &st, i);
        visit(x, &st);
        x->successors++;
    }
}

static void check(struct explorer *x, const struct state *st)
{
    bool waits = false;
    int slots = 0, all = 0;

    for (int i = 0; i < x->r->streams; i++) {
        const struct stream *s = &st->s[i];

        cr_assert_leq(s->n + s->held, x->r->window[i]);
        cr_assert_leq(spilled(s), (unsigned)x->r->window[i], "spill is bounded by the window");
        if (x->r->spill_behind)
            for (int k = 1; k < s->n; k++)
                cr_assert(s->kind[k] == SPILL || s->kind[k - 1] == SLOT);
        if (spilled(s) > x->res.max_spilled)
            x->res.max_spilled = spilled(s);
        if (s->n > x->res.max_queued)
            x->res.max_queued = s->n;
        slots += (int)(s->n - spilled(s)) + s->held + s->device + st->free[i];
        all += x->r->slots[i];
        /* In turn, an empty stream is waited for, too: that is the peer's move, not stuck. */
        waits |= s->n > 0 && (!x->r->in_turn || st->turn == i);
    }
    cr_assert_eq(slots, all, "slots are neither lost nor made");
    x->res.stuck += waits && x->successors == 0;
}

static struct result explore(const struct rules *r)
{
    struct explorer x = {
        .r = r,
        .queue = malloc(STATES / 2 * sizeof(struct state)),
        .set = calloc(STATES, sizeof(uint32_t)),
    };
    struct state first;

    cr_assert(x.queue && x.set);
    memset(&first, 0, sizeof first);
    for (int i = 0; i < r->streams; i++)
        *pool(r, &first, i) = (uint8_t)(*pool(r, &first, i) + r->slots[i]);
    visit(&x, &first);
    while (x.head < x.len) {
        struct state st = x.queue[x.head++];

        x.successors = 0;
        for (int i = 0; i < r->streams; i++) {
            if (!r->in_turn || st.turn == i)
                application_reads(&x, &st, i);
            give_back(&x, &st, i);
            peer_writes(&x, &st, i);
        }
        check(&x, &st);
    }
    x.res.states = x.len;
    free(x.queue);
    free(x.set);
    return x.res;
}

/* --- BLOCK --- */

static struct rules one_stream(int window, int slots, bool spill_behind)
{
    return (struct rules){
        .streams = 1, .window = {window}, .slots = {slots}, .spill_behind = spill_behind};
}

Test(flow_model, block_is_never_stuck_and_keeps_the_order)
{
    for (int window = 1; window <= WINDOW; window++)
        for (int slots = 1; slots <= 3; slots++) {
            struct rules r = one_stream(window, slots, true);
            struct result res = explore(&r);

            cr_assert_eq(res.stuck, 0, "window %d, slots %d: %zu stuck states", window, slots,
                         res.stuck);
            cr_assert_eq(res.disorder, 0);
            cr_assert_geq(res.states, 6);
            cr_assert_eq(res.max_queued, (unsigned)window, "the whole window can wait");
        }
}

/* Without the rule a payload behind a spilled one takes the last slot, and the first can never be
 * delivered: this is what the rule is for, and the proof that this explorer would see it. */
Test(flow_model, block_without_the_rule_gets_stuck)
{
    static const struct {
        int window, slots;
    } known[] = {{2, 1}, {3, 1}, {3, 2}, {4, 2}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct rules r = one_stream(known[i].window, known[i].slots, false);

        cr_assert_gt(explore(&r).stuck, 0, "window %d, slots %d", r.window[0], r.slots[0]);
    }
    /* Exactly where the window holds more packets than the pool has slots. */
    for (int window = 1; window <= WINDOW; window++)
        for (int slots = 1; slots <= 3; slots++) {
            struct rules r = one_stream(window, slots, false);

            cr_assert_eq(explore(&r).stuck > 0, window > slots, "window %d, slots %d", window,
                         slots);
        }
}

Test(flow_model, a_read_that_passes_over_a_spilled_packet_breaks_the_order)
{
    struct rules r = one_stream(2, 1, false);

    r.skip = true;
    cr_assert_gt(explore(&r).disorder, 0);
}

/* No spill by construction: slots >= packets that fit the window + slots kept beyond release. */
Test(flow_model, spill_happens_exactly_when_slots_are_short)
{
    for (int window = 1; window <= WINDOW; window++)
        for (int slots = 1; slots <= 3; slots++)
            for (int kept = 1; kept <= 3; kept++) {
                struct rules r = one_stream(window, slots, true);
                unsigned most;

                r.kept = kept;
                most = explore(&r).max_spilled;
                cr_assert_eq(most > 0, window + kept > slots,
                             "window %d, slots %d, kept %d: %u spilled", window, slots, kept, most);
                cr_assert_leq(most, (unsigned)window);
            }
}

Test(flow_model, two_streams_with_their_own_pools)
{
    for (int w0 = 1; w0 <= WINDOW; w0++)
        for (int w1 = 1; w1 <= w0; w1++)
            for (int k0 = 1; k0 <= 3; k0++)
                for (int k1 = 1; k1 <= 3; k1++) {
                    struct rules r = {
                        .streams = 2, .window = {w0, w1}, .slots = {k0, k1}, .spill_behind = true};
                    struct result res;

                    if (w0 + w1 + k0 + k1 > 11) /* larger ones add time, not insight */
                        continue;
                    res = explore(&r);
                    cr_assert_eq(res.stuck, 0, "windows %d %d, slots %d %d", w0, w1, k0, k1);
                    cr_assert_eq(res.disorder, 0);
                    r.in_turn = true;
                    cr_assert_eq(explore(&r).stuck, 0, "in turn: windows %d %d, slots %d %d", w0,
                                 w1, k0, k1);
                }
}

/* Streams that share a pool: reads with a deadline (NOBUFS, then the other stream) get through. */
Test(flow_model, two_streams_with_a_shared_pool_and_deadlines)
{
    for (int w0 = 1; w0 <= WINDOW; w0++)
        for (int w1 = 1; w1 <= w0; w1++)
            for (int slots = 1; slots <= 3; slots++) {
                struct rules r = {.streams = 2,
                                  .window = {w0, w1},
                                  .slots = {slots, 0},
                                  .shared = true,
                                  .spill_behind = true};
                struct result res = explore(&r);

                cr_assert_eq(res.stuck, 0, "windows %d %d, slots %d", w0, w1, slots);
                cr_assert_eq(res.disorder, 0);
            }
}

/* The documented hazard: a thread that reads them in turn without a deadline waits for a slot that
 * the other stream's unread packets hold. Slots for the sum of the windows prevent that, unless
 * the device keeps them. */
Test(flow_model, two_streams_with_a_shared_pool_read_in_turn_can_hang)
{
    struct rules r = {.streams = 2,
                      .window = {1, 1},
                      .slots = {1, 0},
                      .shared = true,
                      .spill_behind = true,
                      .in_turn = true};

    cr_assert_gt(explore(&r).stuck, 0);
    r.window[1] = 2;
    r.slots[0] = 2;
    cr_assert_gt(explore(&r).stuck, 0);
    r.slots[0] = 3;
    cr_assert_eq(explore(&r).stuck, 0, "as many slots as both windows hold packets");
}

/* --- drop policies: credit is back with the arrival, so the peer can always write --- */

struct drop_rules {
    int queue, slots;
    bool newest; /* DROP_NEWEST, else DROP_OLDEST */
};

struct drop_state {
    uint8_t n, held, device, free;
    uint8_t age[WINDOW]; /* of each queued packet: arrivals since, at most 250; oldest first */
};

/* One arrival. false = the payload was drained. */
static bool arrives(const struct drop_rules *r, struct drop_state *st)
{
    for (int k = 0; k < st->n; k++)
        st->age[k]++;
    if (r->newest) {
        if (st->n == r->queue || st->free == 0)
            return false;
    } else {
        /* At most one from a full queue, or all until a slot is free. */
        while (st->n > 0 && (st->free == 0 || st->n == r->queue)) {
            memmove(st->age, st->age + 1, WINDOW - 1);
            st->age[WINDOW - 1] = 0;
            st->n--;
            st->free++; /* still mapped: home at once */
        }
        if (st->free == 0)
            return false;
    }
    st->free--;
    st->age[st->n++] = 0;
    return true;
}

static void drop_walk(const struct drop_rules *r, struct drop_state st, int depth, size_t *steps)
{
    struct drop_state next;

    ++*steps;
    cr_assert_eq(st.n + st.held + st.device + st.free, r->slots);
    cr_assert_leq(st.n, r->queue);
    for (int k = 1; k < st.n; k++)
        cr_assert_gt(st.age[k - 1], st.age[k], "order");
    if (depth == 0)
        return;

    next = st;
    if (arrives(r, &next)) {
        cr_assert_eq(next.age[next.n - 1], 0, "what came last is queued");
    } else if (r->newest) {
        cr_assert(st.n == r->queue || st.free == 0);
        cr_assert_eq(next.n, st.n, "nothing that waits is lost");
    } else {
        cr_assert_eq(next.n, 0);
        cr_assert_eq(st.held + st.device, r->slots, "only when all are held or in use");
    }
    drop_walk(r, next, depth - 1, steps);

    if (st.n > 0) {
        next = st;
        memmove(next.age, next.age + 1, WINDOW - 1);
        next.age[WINDOW - 1] = 0;
        next.n--;
        next.held++;
        drop_walk(r, next, depth - 1, steps);
    }
    if (st.held > 0) {
        next = st;
        next.held--;
        next.device++;
        drop_walk(r, next, depth - 1, steps);
        next.device--;
        next.free++;
        drop_walk(r, next, depth - 1, steps);
    }
    if (st.device > 0) {
        next = st;
        next.device--;
        next.free++;
        drop_walk(r, next, depth - 1, steps);
    }
    /* Never stuck: the peer's move above is always possible, and without it all that waits can be
     * read (each has its slot) and all slots come home. */
}

Test(flow_model, drop_policies)
{
    for (int newest = 0; newest < 2; newest++)
        for (int queue = 1; queue <= WINDOW; queue++)
            for (int slots = 1; slots <= 3; slots++) {
                struct drop_rules r = {.queue = queue, .slots = slots, .newest = newest};
                struct drop_state st = {.free = (uint8_t)slots};
                size_t steps = 0;

                drop_walk(&r, st, 10, &steps);
                cr_assert_gt(steps, 1000);
            }
}
