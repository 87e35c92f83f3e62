/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the table in section 10 of the wire protocol's description: fields of headers, streams,
 * windows. Each test is named after its row.
 */
#include "rows.h"

#include <sys/socket.h>

/* ---- shared ------------------------------------------------------------------------------------ */

const struct clbi_wire_header *answer(struct peer *p, uint32_t type, int32_t id)
{
    const int64_t stop = check_ms() + 10000;
    memset(&p->last, 0xff, sizeof p->last);
    while (p->last.type != type || p->last.id != id) {
        CHECK(!p->eof);
        CHECK_LE(check_ms(), stop);
        peer_pump(p, 20);
    }
    return &p->last;
}

const struct clbi_wire_header *ask(struct peer *p, uint32_t type, const char *name,
                                   uint32_t stream_id, uint32_t size)
{
    const int32_t id = p->next_id++;
    CHECK(peer_send_header(p, type, id, name, stream_id, size, CLBI_FLAG_ACK));
    return answer(p, type + 8, id);
}

void row(const void *where, script fn, int arg, uint32_t window, int err)
{
    struct scene sc = {.where = *(const int *)where, .fn = fn, .arg = arg};
    row_scene(&sc, window, err);
}

void row_scene(struct scene *sc, uint32_t window, int err)
{
    clb_packet *p = NULL;
    int r = scene_open(sc);
    CHECK(r == CLB_OK || r == err); /* some come up and end at once */
    if (!sc->link) {
        scene_end(sc);
        return;
    }
    if (window) {
        r = scene_stream(sc, window == NO_WRITES ? 0 : window, 0);
        CHECK(r == CLB_OK || r == CLB_ERR_LOST || r == CLB_ERR_CLOSED);
    }
    /* A script that succeeds makes its last step 100. */
    if (!err) {
        while (sc->s && atomic_load(&sc->made) < 100 &&
               clb_link_get_state(sc->link, NULL) == CLB_LINK_UP) {
            if (clb_stream_read(sc->s, &p, 2 * MS) == CLB_OK) {
                clb_packet_free(&p);
            }
        }
        scene_await(sc, 100);
        CHECK_EQ(clb_link_get_state(sc->link, NULL), CLB_LINK_UP);
    } else {
        scene_lost(sc, err, 10000);
    }
    scene_end(sc);
}

void passed(struct peer *p, struct scene *sc)
{
    CHECK_EQ(ask(p, CLBI_PING_REQ, NULL, 0, 0)->flags, CLBI_FLAG_ACK); /* in step, and alive */
    atomic_store(&sc->made, 100);
    stay_polite(p, sc);
}

/* ---- header, end of stream --------------------------------------------------------------------- */

static void dies_in_header(struct peer *p, struct scene *sc)
{
    static const uint8_t ping[CLBI_WIRE_HEADER] = {[4] = CLBI_PING_REQ};
    announced(p, 4096);
    peer_send_raw(p, ping, (size_t)(sc->arg / 2));
    if (sc->arg % 2) {
        peer_abort(p);
    } else {
        peer_close(p);
    }
    moved(sc);
}

static void gone(struct peer *p, void *arg)
{
    CHECK_EQ(p->fd, -1);
    (void)arg;
}

/* Also without a single byte of it: FIN without RESET. */
void header_short(const void *where)
{
    static const int bytes[] = {0, 1, 42, 83};
    for (int i = 0; i < 8; i++) {
        struct scene sc = {
            .where = *(const int *)where, .fn = dies_in_header, .arg = bytes[i / 2] * 2 + i % 2};
        clb_packet *p = NULL;
        CHECK_EQ(scene_open(&sc), CLB_OK);
        int err = scene_stream(&sc, 0, 0);
        CHECK(err == CLB_OK || err == CLB_ERR_LOST);
        CHECK(!sc.s || clb_stream_read(sc.s, &p, 10 * SEC) == CLB_ERR_LOST);
        peer_join(&sc.peer); /* it has made its last move for sure */
        in_time(atomic_load(&sc.moved), 0);
        peer_start(&sc.peer, gone, NULL); /* for the end of the scene */
        scene_lost(&sc, CLB_ERR_LOST, 0);
        scene_end(&sc);
    }
}

/* ---- type, id, time ---------------------------------------------------------------------------- */

static void says_type(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    peer_send_header(p, (uint32_t)sc->arg, 1, "a", 0, 0, CLBI_FLAG_ACK);
    stay(sc);
}

void type_out_of_table(const void *where)
{
    static const uint32_t types[] = {1, 7, 9, 15, 16, 23, 26, 29, 0x100, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        row(where, says_type, (int)types[i], NO_WRITES, CLB_ERR_PROTO);
    }
}

static void any_ids(struct peer *p, struct scene *sc)
{
    static const int32_t ids[] = {INT32_MIN, -1, 0, 1, INT32_MAX, 0, -559038737};
    int i = announced(p, 4096);
    for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
        const uint32_t s = p->stream[i].id;
        peer_send_header(p, CLBI_PING_REQ, ids[k], NULL, 0, 0, CLBI_FLAG_ACK);
        answer(p, CLBI_PING_RESP, ids[k]);
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, ids[k], "a", s, 4096, CLBI_FLAG_ACK);
        CHECK_EQ(answer(p, CLBI_CREATE_STREAM_RESP, ids[k])->stream_id, s);
        p->by_hand = true;
        peer_send_header(p, CLBI_WRITE_REQ, ids[k], NULL, s, 3, CLBI_FLAG_ACK);
        peer_send_raw(p, "abc", 3);
        CHECK_EQ(answer(p, CLBI_WRITE_RESP, ids[k])->flags, CLBI_FLAG_ACK);
        peer_send_header(p, CLBI_CLOSE_STREAM_REQ, ids[k], NULL, 4711, 0, CLBI_FLAG_ACK);
        answer(p, CLBI_CLOSE_STREAM_RESP, ids[k]);
    }
    passed(p, sc);
}

void id_any_value(const void *where)
{
    row(where, any_ids, 0, NO_WRITES, CLB_OK);
}

static const struct {
    uint32_t tnsec;
    uint64_t tsec;
    bool known;
} times[] = {{1000000000, 5, false}, {0xFFFFFFFF, 5, false},        {5, UINT64_MAX, false},
             {999999999, 50, true},  {5, UINT64_C(1) << 62, false}, {0, 1, true}};

static void odd_times(struct peer *p, struct scene *sc)
{
    int i = announced(p, 4096);
    p->by_hand = true;
    for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
        uint8_t bytes[CLBI_WIRE_HEADER];
        struct clbi_wire_header h = {.id = (int32_t)k,
                                     .type = CLBI_WRITE_REQ,
                                     .tnsec = times[k].tnsec,
                                     .tsec = times[k].tsec,
                                     .stream_id = p->stream[i].id};
        clbi_wire_encode(bytes, &h);
        peer_send_raw(p, bytes, sizeof bytes);
    }
    stay_polite(p, sc);
}

/* Nonsense, the far future and times that run backwards are informational only. */
void time_nonsense(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = odd_times};
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
        clb_packet *p = NULL;
        clb_packet_info info;
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
        clb_packet_get_info(p, &info, sizeof info);
        CHECK_EQ(info.peer_ns != 0, times[k].known);
        clb_packet_free(&p);
    }
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_UP);
    scene_end(&sc);
}

/* ---- answers ----------------------------------------------------------------------------------- */

static void unasked(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    for (int k = 0; k < sc->arg; k++) {
        peer_send_header(p, k % 2 ? CLBI_WRITE_RESP : CLBI_PING_RESP, 100000 + k, NULL, 0, 5,
                         CLBI_FLAG_ACK);
    }
    if (sc->arg <= 16) {
        passed(p, sc);
    }
    stay(sc);
}

void answer_without_request(const void *where)
{
    row(where, unasked, 16, NO_WRITES, CLB_OK);
    row(where, unasked, 17, NO_WRITES, CLB_ERR_PROTO);
}

static void repeats_an_answer(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    announced(p, 4096);
    peer_send_header(p, CLBI_CREATE_STREAM_REQ, 77, "b", 1, 64, CLBI_FLAG_ACK);
    do { /* something of the victim's that has been answered: its CREATE, or its first PING */
        CHECK(peer_recv(p, &h, NULL, 5000));
    } while (h.type != CLBI_CREATE_STREAM_RESP || h.id != 77);
    for (int k = 0; k < sc->arg; k++) {
        peer_send_header(p, CLBI_CREATE_STREAM_RESP, 12, "a", 0, 64, CLBI_FLAG_ACK);
    }
    if (sc->arg <= 16) {
        passed(p, sc);
    }
    stay(sc);
}

void answer_twice(const void *where)
{
    row(where, repeats_an_answer, 16, NO_WRITES, CLB_OK);
    row(where, repeats_an_answer, 17, NO_WRITES, CLB_ERR_PROTO);
}

/* ---- names ------------------------------------------------------------------------------------- */

static const struct clbi_wire_header *create_raw(struct peer *p, const void *name, size_t n,
                                                 uint32_t id)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_wire_header h = {
        .id = p->next_id++, .type = CLBI_CREATE_STREAM_REQ, .stream_id = id, .size = 64};
    memcpy(h.name, name, n);
    clbi_wire_encode(bytes, &h);
    peer_send_raw(p, bytes, sizeof bytes);
    return answer(p, CLBI_CREATE_STREAM_RESP, h.id);
}

static void refused(const struct clbi_wire_header *h)
{
    CHECK_EQ(h->flags, CLBI_FLAG_TOOBIG);
    CHECK_EQ(h->stream_id, CLBI_ID_NONE);
}

static void bad_names(struct peer *p, struct scene *sc)
{
    char full[52];
    memset(full, 'x', sizeof full);
    announced(p, 4096);
    if (sc->arg == 0) {
        refused(create_raw(p, full, sizeof full, 5));
        CHECK_EQ(create_raw(p, full, 51, 5)->flags, CLBI_FLAG_ACK); /* one byte less is a name */
    } else {
        refused(create_raw(p, "", 0, 5));
        refused(create_raw(p, "\0behind", 7, 5));
    }
    passed(p, sc);
}

void name_without_nul(const void *where)
{
    row(where, bad_names, 0, NO_WRITES, CLB_OK);
}

void name_empty(const void *where)
{
    row(where, bad_names, 1, NO_WRITES, CLB_OK);
}

#define HOSTILE "../\n\x1b[2J\xff\x80%s%n"

static void hostile_name(struct peer *p, struct scene *sc)
{
    const struct clbi_wire_header *h = create_raw(p, HOSTILE, sizeof HOSTILE - 1, 5);
    CHECK_EQ(h->flags, CLBI_FLAG_ACK);
    CHECK(memcmp(h->name, HOSTILE, sizeof HOSTILE) == 0); /* bytes, whatever they mean elsewhere */
    const uint32_t id = h->stream_id;
    scene_await(sc, 1);
    peer_send_header(p, CLBI_WRITE_REQ, 70, NULL, id, 65, CLBI_FLAG_ACK);
    stay(sc);
}

static void plain_text(void *priv, enum clb_log_level level, const char *text)
{
    (void)level;
    for (const char *c = text; *c; c++) {
        CHECK((unsigned char)*c >= ' ' && (unsigned char)*c < 0x7f);
    }
    atomic_fetch_add((atomic_int *)priv, 1);
}

/* Opaque bytes that do not reach a log as they are. */
void name_hostile(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = hostile_name};
    struct clb_status why;
    clb_stream_info info;
    atomic_int lines = 0;
    sc.params.log.cb = plain_text;
    sc.params.log.level = CLB_LOG_DEBUG;
    sc.params.log.priv = &lines;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(clb_link_next_stream(sc.link, &info, sizeof info, 10 * SEC), CLB_OK);
    CHECK(strcmp(info.name, HOSTILE) == 0);
    step(&sc);
    scene_lost(&sc, CLB_ERR_PROTO, 10000);
    clb_link_get_state(sc.link, &why);
    plain_text(&lines, CLB_LOG_INFO, why.text);
    CHECK(strstr(why.text, "..") != NULL);
    CHECK_GE(atomic_load(&lines), 2);
    scene_end(&sc);
}

/* ---- stream ids -------------------------------------------------------------------------------- */

static void unknown_release_close(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    for (int k = 0; k < 40; k++) {
        const uint32_t id = k % 2 ? 4711 : 0xFFFFFFFF;
        if (sc->arg) {
            const struct clbi_wire_header *h = ask(p, CLBI_CLOSE_STREAM_REQ, NULL, id, 0);
            CHECK_EQ(h->flags, CLBI_FLAG_ACK);
            CHECK_EQ(h->stream_id, id);
        } else {
            CHECK_EQ(ask(p, CLBI_READ_REL_REQ, NULL, id, 10)->flags, CLBI_FLAG_NACK);
        }
    }
    passed(p, sc);
}

void stream_unknown_on_release(const void *where)
{
    row(where, unknown_release_close, 0, NO_WRITES, CLB_OK);
}

void stream_unknown_on_close(const void *where)
{
    row(where, unknown_release_close, 1, NO_WRITES, CLB_OK);
}

/* As a host: names the victim's half by a number that cannot be, or that another stream has. */
static void bad_ids(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    if (p->host) {
        announced(p, 4096);
        if (sc->arg) {
            refused(create_raw(p, "b", 1, p->stream[0].id));
        } else {
            refused(create_raw(p, "b", 1, 1u << 24));
            refused(create_raw(p, "b", 1, 0xDEADFFFF));
        }
        CHECK_EQ(create_raw(p, "b", 1, 7)->stream_id, 7);
        passed(p, sc);
        return;
    }
    if (sc->arg) {
        announced(p, 4096);
        step(sc);
    }
    do {
        CHECK(peer_recv(p, &h, NULL, 10000));
    } while (h.type != CLBI_CREATE_STREAM_REQ);
    peer_send_header(p, CLBI_CREATE_STREAM_RESP, h.id, h.name, sc->arg ? 0 : 1u << 24, h.size,
                     CLBI_FLAG_ACK);
    stay(sc);
}

static void id_row(const void *where, int other)
{
    struct scene sc = {.where = *(const int *)where, .fn = bad_ids, .arg = other};
    clb_stream *s = NULL;
    if (is_device(&sc)) {
        row_scene(&sc, NO_WRITES, CLB_OK);
        return;
    }
    CHECK_EQ(scene_open(&sc), CLB_OK);
    if (other) {
        CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
        scene_await(&sc, 1);
    }
    CHECK_EQ(clb_stream_open(&s, sc.link, clb_stream_params(.name = "b")), CLB_ERR_LOST);
    scene_lost(&sc, CLB_ERR_PROTO, 10000);
    scene_end(&sc);
}

void stream_id_out_of_range(const void *where)
{
    id_row(where, 0);
}

void stream_id_of_another_name(const void *where)
{
    id_row(where, 1);
}

/* ---- windows ----------------------------------------------------------------------------------- */

static void no_window(struct peer *p, struct scene *sc)
{
    const struct clbi_wire_header *h = ask(p, CLBI_CREATE_STREAM_REQ, "z", 9, 0);
    const uint32_t id = h->stream_id;
    CHECK_EQ(h->flags, CLBI_FLAG_ACK);
    CHECK_EQ(h->size, 0);
    if (sc->arg == 0) {
        passed(p, sc);
    }
    peer_send_header(p, CLBI_WRITE_REQ, 7, NULL, id, 1, CLBI_FLAG_ACK);
    stay(sc);
}

void window_of_0(const void *where)
{
    row(where, no_window, 0, 0, CLB_OK);
    row(where, no_window, 1, 0, CLB_ERR_PROTO);
}

static bool granted(struct peer *p, const char *name, uint32_t id, uint32_t window)
{
    const struct clbi_wire_header *h = ask(p, CLBI_CREATE_STREAM_REQ, name, id, window);
    CHECK(h->flags == CLBI_FLAG_ACK || h->flags == CLBI_FLAG_TOOBIG);
    return h->flags == CLBI_FLAG_ACK;
}

static void huge_windows(struct peer *p, struct scene *sc)
{
    CHECK(!granted(p, "a", 1, 0xFFFFFFFF));
    CHECK(!granted(p, "a", 1, 10001));
    CHECK(granted(p, "a", 1, 10000));
    CHECK(granted(p, "b", 2, 10000));
    CHECK(!granted(p, "c", 3, 5001)); /* all together */
    CHECK(granted(p, "c", 3, 5000));
    CHECK(!granted(p, "d", 4, 1));
    passed(p, sc);
}

static void raised_windows(struct peer *p, struct scene *sc)
{
    for (uint32_t w = 64; w <= 10000; w += 400) {
        CHECK(granted(p, "a", 1, w));
        CHECK(granted(p, "a", 1, 10)); /* changes nothing */
    }
    CHECK(!granted(p, "a", 1, 10001));
    CHECK(granted(p, "b", 2, 10000));
    CHECK(granted(p, "c", 3, 4000));
    for (int k = 0; k < 100; k++) {
        CHECK(!granted(p, "c", 3, 9000 + (uint32_t)k));
    }
    passed(p, sc);
}

static void window_row(const void *where, script fn)
{
    struct scene sc = {.where = *(const int *)where, .fn = fn};
    sc.params.max_stream_window = 10000;
    sc.params.max_link_window = 25000;
    row_scene(&sc, 0, CLB_OK);
}

void window_huge(const void *where)
{
    window_row(where, huge_windows);
}

void window_raised_for_ever(const void *where)
{
    window_row(where, raised_windows);
}

static void many_streams(struct peer *p, struct scene *sc)
{
    char name[16];
    uint32_t id = 0;
    p->deaf = true; /* the peer's books are not that large */
    for (uint32_t k = 0; k < 32; k++) {
        snprintf(name, sizeof name, "n%u", k);
        id = ask(p, CLBI_CREATE_STREAM_REQ, name, k, 64)->stream_id;
        CHECK_EQ(p->last.flags, CLBI_FLAG_ACK);
    }
    for (int k = 0; k < 500; k++) {
        snprintf(name, sizeof name, "m%d", k);
        refused(create_raw(p, name, strlen(name), 40));
    }
    for (int k = 0; k < 500; k++) { /* opened and closed without end */
        CHECK_EQ(ask(p, CLBI_CLOSE_STREAM_REQ, NULL, id, 0)->flags, CLBI_FLAG_ACK);
        snprintf(name, sizeof name, "m%d", k);
        const struct clbi_wire_header *h = create_raw(p, name, strlen(name), 40 + (uint32_t)k);
        CHECK_EQ(h->flags, CLBI_FLAG_ACK);
        id = h->stream_id;
    }
    p->deaf = false;
    passed(p, sc);
}

void streams_more_than_32(const void *where)
{
    row(where, many_streams, 0, 0, CLB_OK);
}
