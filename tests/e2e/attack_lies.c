/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that lie about sizes, streams and names, and those that flood. */
#include "attack_kit.h"

#include "check.h"
#include "talloc.h"

/* ---- lies about sizes and streams -------------------------------------------------------------- */

/* arg bytes are announced; the payload follows when it could be true. */
static void lie_size(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    write_header(p, p->stream[i].id, a->arg);
    if (a->arg <= WINDOW) {
        send_zeros(p, a->arg);
    }
}

/* The first packet fits, the second exceeds what is left of the window by one byte. */
static void lie_fill(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    p->deaf = true;
    write_header(p, p->stream[i].id, 1000);
    send_zeros(p, 1000);
    write_header(p, p->stream[i].id, WINDOW - 1000 + a->arg);
    send_zeros(p, a->arg ? 0 : WINDOW - 1000);
}

/* arg packets of arg2 bytes, whatever the other side says. With BLOCK and nobody reading. */
static void too_many(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    for (uint32_t k = 0; k < a->arg; k++) {
        write_header(p, p->stream[i].id, a->arg2);
        send_zeros(p, a->arg2);
    }
}

static void unknown_streams(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    for (uint32_t k = 0; k < a->arg; k++) {
        write_header(p, k % 2 ? 0x00FFFFFF : CLBI_ID_NONE, a->arg2);
        send_zeros(p, a->arg2);
    }
    p->by_hand = true;
    write_header(p, p->stream[i].id, 10);
    send_zeros(p, 10);
}

/* Nobody reads 2 GiB and more to keep in step. */
static void unknown_huge(struct peer *p, const struct attack *a)
{
    until_opened(p, announce(p));
    write_header(p, 0x00FFFFFF, a->arg);
}

static void forged_release(struct peer *p, const struct attack *a)
{
    struct clbi_wire_header h;
    int i = announce(p);
    until_opened(p, i);
    if (a->writes) { /* one packet is out: name more bytes than it had, or twice */
        do {
            CHECK(peer_recv(p, &h, NULL, 5000));
        } while (h.type != CLBI_WRITE_REQ);
        peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    }
    for (uint32_t k = 0; k < 20; k++) {
        peer_send_header(p, CLBI_READ_REL_REQ, p->next_id++, NULL, p->stream[i].id, a->arg,
                         CLBI_FLAG_ACK);
    }
}

void size_beyond_window(void)
{
    for (int role = 0; role < 2; role++) {
        victim((struct attack){
            .fn = lie_size, .arg = WINDOW + 1, .as_host = role, .err = CLB_ERR_PROTO});
        victim((struct attack){
            .fn = lie_size, .arg = WINDOW, .as_host = role, .packets = 1, .allocs = 1});
    }
}

/* Refused before anything is allocated. */
void size_beyond_maximum(void)
{
    const uint32_t sizes[] = {0xFFFFFFFF, 0xFFFFFFC1, 0x80000000, 0x7FFFFFFF};
    const clb_link_params small = {.max_payload = 1000};
    for (int role = 0; role < 2; role++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            victim((struct attack){
                .fn = lie_size, .arg = sizes[i], .as_host = role, .err = CLB_ERR_PROTO});
        }
        victim((struct attack){
            .fn = lie_size, .arg = 1001, .as_host = role, .link = small, .err = CLB_ERR_PROTO});
        victim((struct attack){.fn = lie_size,
                               .arg = 1000,
                               .as_host = role,
                               .link = small,
                               .packets = 1,
                               .allocs = 1});
    }
}

void stream_unknown_on_write(void)
{
    for (int role = 0; role < 2; role++) {
        victim((struct attack){.fn = unknown_streams,
                               .arg = 16,
                               .arg2 = 100,
                               .as_host = role,
                               .packets = 1,
                               .allocs = 1,
                               .nacks = 16});
        victim((struct attack){
            .fn = unknown_streams, .arg = 17, .arg2 = 0, .as_host = role, .err = CLB_ERR_PROTO});
        victim((struct attack){
            .fn = unknown_huge, .arg = 0xFFFFFFFF, .as_host = role, .err = CLB_ERR_PROTO});
        victim((struct attack){
            .fn = unknown_huge, .arg = (64u << 20) + 1, .as_host = role, .err = CLB_ERR_PROTO});
    }
}

void release_beyond_fill(void)
{
    for (int role = 0; role < 2; role++) {
        victim((struct attack){.fn = forged_release,
                               .arg = WRITE_SIZE + 1,
                               .as_host = role,
                               .writes = true,
                               .err = CLB_ERR_PROTO});
    }
}

/* Also the second release of one packet. */
void release_of_nothing(void)
{
    for (int role = 0; role < 2; role++) {
        victim(
            (struct attack){.fn = forged_release, .arg = 0, .as_host = role, .err = CLB_ERR_PROTO});
        victim((struct attack){.fn = forged_release,
                               .arg = WRITE_SIZE,
                               .as_host = role,
                               .writes = true,
                               .err = CLB_ERR_PROTO,
                               .allocs = -1});
    }
}

/* Nobody reads: the 65th packet, or the first byte beyond the window, ends the link; what was
 * complete before is still there. */
struct unread {
    void (*fn)(struct peer *, const struct attack *);
    uint32_t arg, arg2;
    uint64_t packets;
    int err;
};

static void nobody_reads(const struct unread *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (int spill = 0; spill < 2; spill++) {
            struct attack a = {.fn = cases[i].fn, .arg = cases[i].arg, .arg2 = cases[i].arg2};
            struct peer peer;
            struct talloc t;
            clb_link *link = NULL;
            clb_stream *s = NULL;
            struct clb_status why;
            clb_link_stats ls;
            talloc_init(&t, NULL);
            t.limit = spill ? 1 : 0;
            atomic_store(&over, 0);
            int fd = peer_pair(&peer, false);
            peer_start(&peer, run_attack, &a);
            CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.loop = honest_loop)),
                     CLB_OK);
            clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
            sp.allocator = talloc_allocator(&t);
            CHECK_EQ(clb_stream_open(&s, link, &sp), CLB_OK);
            for (int k = 0; k < 5000; k++) {
                clb_stream_stats st;
                clb_stream_get_stats(s, &st, sizeof st);
                if (st.packets >= cases[i].packets &&
                    (!cases[i].err || clb_link_get_state(link, NULL) == CLB_LINK_DOWN)) {
                    break;
                }
                check_sleep_ms(2);
            }
            clb_link_get_state(link, &why);
            CHECK_EQ(why.err, cases[i].err);
            clb_link_get_stats(link, &ls, sizeof ls);
            honest_check();
            for (uint64_t k = 0; k < cases[i].packets; k++) {
                clb_packet *p = NULL;
                CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
                clb_packet_free(&p);
            }
            clb_packet *p = NULL;
            CHECK_EQ(clb_stream_read(s, &p, 0), cases[i].err ? CLB_ERR_LOST : CLB_ERR_AGAIN);
            atomic_store(&over, 1);
            clb_link_close(&link);
            clb_stream_close(&s);
            peer_join(&peer);
            talloc_check(&t);
        }
    }
}

void size_beyond_what_is_left(void)
{
    static const struct unread cases[] = {
        {too_many, 64, 16384, 64, CLB_OK},
        {too_many, 5, WINDOW / 4, 4, CLB_ERR_PROTO},
        {lie_fill, 0, 0, 2, CLB_OK},
        {lie_fill, 1, 0, 1, CLB_ERR_PROTO},
    };
    nobody_reads(cases, sizeof cases / sizeof *cases);
}

void packets_beyond_64(void)
{
    static const struct unread cases[] = {{too_many, 64, 10, 64, CLB_OK},
                                          {too_many, 65, 10, 64, CLB_ERR_PROTO}};
    nobody_reads(cases, sizeof cases / sizeof *cases);
}

void empty_packets_beyond_64(void)
{
    static const struct unread cases[] = {{too_many, 64, 0, 64, CLB_OK},
                                          {too_many, 65, 0, 64, CLB_ERR_PROTO},
                                          {too_many, 2000, 0, 64, CLB_ERR_PROTO}};
    nobody_reads(cases, sizeof cases / sizeof *cases);
}

/* ---- floods ------------------------------------------------------------------------------------ */

static void creates_for_ever(struct peer *p, const struct attack *a)
{
    char name[40];
    struct clbi_wire_header h;
    int i = announce(p);
    until_opened(p, i);
    for (uint32_t k = 0; k < a->arg; k++) {
        snprintf(name, sizeof name, "s%u", a->arg2 ? k % a->arg2 : k);
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, (int32_t)(k + 1000), name, CLBI_ID_NONE,
                         k % 7 ? 64 + k : 0xFFFFFFFF, CLBI_FLAG_ACK);
        while (peer_recv(p, &h, NULL, 0)) {
            if (h.type == CLBI_CREATE_STREAM_RESP && (h.flags & CLBI_FLAG_ACK)) {
                peer_send_header(p, CLBI_CLOSE_STREAM_REQ, (int32_t)(k + 1000), NULL, h.stream_id,
                                 0, CLBI_FLAG_ACK);
            }
        }
    }
    while (peer_recv(p, &h, NULL, 100)) {
    }
    write_header(p, p->stream[i].id, 10);
    send_zeros(p, 10);
    while (peer_recv(p, &h, NULL, 100)) {
    }
}

void create_flood(void)
{
    victim((struct attack){
        .fn = creates_for_ever, .arg = 3000, .packets = 1, .allocs = 1, .nacks = 100});
    victim((struct attack){
        .fn = creates_for_ever, .arg = 3000, .arg2 = 20, .packets = 1, .allocs = 1});
}
