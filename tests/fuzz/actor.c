/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a link. See actor.h. */
#include "actor.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void actor_init(struct actor *a, int fd, bool host, unsigned manners)
{
    *a = (struct actor){.fd = fd, .host = host, .manners = manners, .next_id = 100};
    for (unsigned i = 0; i < 8; i++)
        a->id[i] = CLBI_ID_NONE;
}

void actor_close(struct actor *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

/* ---- saying ---------------------------------------------------------------------------------- */

static void say(struct actor *a, const void *bytes, size_t n)
{
    if (n > sizeof a->out - a->out_len)
        n = sizeof a->out - a->out_len;
    if (n > 0)
        memcpy(a->out + a->out_len, bytes, n);
    a->out_len += n;
}

static void say_fill(struct actor *a, size_t n)
{
    if (n > sizeof a->out - a->out_len)
        n = sizeof a->out - a->out_len;
    memset(a->out + a->out_len, 0xEE, n);
    a->out_len += n;
}

static void say_header(struct actor *a, const struct clbi_wire_header *h)
{
    uint8_t bytes[CLBI_WIRE_HEADER];

    clbi_wire_encode(bytes, h);
    say(a, bytes, sizeof bytes);
}

static void request(struct actor *a, uint32_t type, const char *name, uint32_t stream,
                    uint32_t size)
{
    struct clbi_wire_header h = {
        .id = a->next_id++, .type = type, .stream_id = stream, .size = size, .flags = 1};

    if (name)
        memcpy(h.name, name, CLBI_WIRE_NAME);
    say_header(a, &h);
}

static void say_answer(struct actor *a, const struct clbi_wire_header *req, uint32_t flags)
{
    struct clbi_wire_header h = *req;

    h.type = req->type == CLBI_READ_REL_SPEC_REQ ? CLBI_READ_REL_SPEC_RESP : req->type + 8;
    h.flags = flags;
    if (req->type == CLBI_CREATE_STREAM_REQ && a->host && h.stream_id == CLBI_ID_NONE)
        h.stream_id = a->id[(unsigned char)h.name[0] % 8] != CLBI_ID_NONE
                          ? a->id[(unsigned char)h.name[0] % 8]
                          : (unsigned char)h.name[0];
    say_header(a, &h);
}

static void forget_seen(struct actor *a)
{
    a->seen_len--;
    memmove(a->seen, a->seen + 1, a->seen_len * sizeof a->seen[0]);
}

/* Sends what is due, a chunk of it at most. */
static bool push(struct actor *a)
{
    bool part = a->chunk > 0 && a->chunks > 0 && a->chunk < a->out_len;
    size_t n = part ? a->chunk : a->out_len;
    ssize_t r;

    if (a->fd < 0 || a->shut) {
        a->out_len = 0;
        return false;
    }
    if (n == 0)
        return false;
    r = send(a->fd, a->out, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r < 0) {
        if (errno != EAGAIN)
            a->out_len = 0;
        return false;
    }
    a->chunks -= part;
    a->out_len -= (size_t)r;
    memmove(a->out, a->out + r, a->out_len);
    return true;
}

/* ---- listening ------------------------------------------------------------------------------- */

static void look_at_request(struct actor *a, const struct clbi_wire_header *h)
{
    CHECK_EQ(h->flags, CLBI_FLAG_ACK);
    CHECK(!a->heard_reset || h->type != CLBI_WRITE_REQ);
    switch (h->type) {
    case CLBI_WRITE_REQ:
        CHECK(h->stream_id < CLBI_ID_LIMIT);
        a->payload_left = h->size;
        if (a->written_len < ACTOR_SEEN) {
            a->written[a->written_len] = h->size;
            a->written_id[a->written_len++] = h->stream_id;
        }
        break;
    case CLBI_CREATE_STREAM_REQ:
        CHECK_GT(clbi_wire_name_len(h->name), 0);
        if (h->stream_id != CLBI_ID_NONE)
            a->id[(unsigned char)h->name[0] % 8] = h->stream_id;
        break;
    case CLBI_RESET_REQ:
        CHECK(!a->heard_reset);
        a->heard_reset = true;
        break;
    default: break;
    }
    if ((a->manners & ACTOR_ANSWERS && a->answers < ACTOR_PATIENCE) ||
        (a->manners & ACTOR_GREETS && a->answers == 0 && h->type == CLBI_PING_REQ && !a->host)) {
        a->answers++;
        say_answer(a, h, CLBI_FLAG_ACK);
    } else {
        if (a->seen_len == ACTOR_SEEN)
            forget_seen(a);
        a->seen[a->seen_len++] = *h;
    }
}

static void look_at_header(struct actor *a, const uint8_t bytes[CLBI_WIRE_HEADER])
{
    struct clbi_wire_header h;

    clbi_wire_decode(&h, bytes);
    CHECK(h.tnsec < 1000000000u);
    if (h.type <= CLBI_RESET_REQ) {
        CHECK(h.type != CLBI_READ_REQ);
        look_at_request(a, &h);
        return;
    }
    CHECK((h.type >= CLBI_WRITE_RESP && h.type <= CLBI_RESET_RESP && h.type != CLBI_READ_RESP) ||
          h.type == CLBI_READ_REL_SPEC_RESP || h.type == CLBI_WRITE_FD_RESP);
    CHECK(h.flags == CLBI_FLAG_ACK || h.flags == CLBI_FLAG_NACK ||
          (h.flags == CLBI_FLAG_TOOBIG && h.type == CLBI_CREATE_STREAM_RESP));
    if (h.type == CLBI_CREATE_STREAM_RESP && h.flags == CLBI_FLAG_ACK &&
        clbi_wire_name_len(h.name) > 0)
        a->id[(unsigned char)h.name[0] % 8] = h.stream_id;
}

static bool pull(struct actor *a)
{
    uint8_t buf[4096];
    ssize_t r;
    size_t at = 0;

    if (a->fd < 0)
        return false;
    r = recv(a->fd, buf, sizeof buf, MSG_DONTWAIT);
    if (r <= 0)
        return false;
    while (at < (size_t)r) {
        size_t left = (size_t)r - at;
        size_t n = a->payload_left > 0 ? a->payload_left : sizeof a->head - a->head_len;

        n = n < left ? n : left;
        if (a->payload_left > 0) {
            a->payload_left -= n;
        } else {
            memcpy(a->head + a->head_len, buf + at, n);
            a->head_len += n;
            if (a->head_len == sizeof a->head) {
                a->head_len = 0;
                look_at_header(a, a->head);
            }
        }
        at += n;
    }
    return true;
}

bool actor_move(struct actor *a)
{
    bool moved = !(a->manners & ACTOR_DEAF) && pull(a);

    moved |= push(a);
    if (a->out_len == 0 && a->shut_due && a->fd >= 0 && !a->shut) {
        a->shut = moved = true;
        shutdown(a->fd, SHUT_WR);
    }
    if (a->out_len == 0 && a->close_due && a->fd >= 0) {
        actor_close(a);
        moved = true;
    }
    return moved;
}

/* ---- operations ------------------------------------------------------------------------------ */

void actor_name(struct input *in, char name[CLBI_WIRE_NAME])
{
    uint8_t c = take8(in);

    memset(name, 0, CLBI_WIRE_NAME);
    if (c == 0xff)
        memset(name, 'x', CLBI_WIRE_NAME); /* no NUL */
    else if (c == 0xfe)
        memset(name, 0x1b, CLBI_WIRE_NAME - 1); /* the longest, to be escaped */
    else if (c < 0xc0)
        name[0] = (char)('A' + c % 40); /* more than fit on a link */
    /* else: empty */
}

static uint32_t stream_of(const struct actor *a, struct input *in)
{
    uint8_t k = take8(in);

    return k < 8 ? a->id[k] : k < 0xc0 ? k - 8u : take32(in);
}

static void header(struct actor *a, struct input *in)
{
    static const uint8_t types[] = {0, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 24, 25, 27, 28};
    struct clbi_wire_header h = {0};
    uint8_t k = take8(in);

    h.type = k < 0xf0 ? types[k % sizeof types] : k;
    k = take8(in);
    h.id = k < a->seen_len ? a->seen[k].id : k < 0xc0 ? a->next_id++ : (int32_t)take32(in);
    actor_name(in, h.name);
    h.stream_id = stream_of(a, in);
    k = take8(in);
    h.size = k < 0x80 ? k : k < 0xe0 ? (k & 0x3fu) * 64u : take32(in);
    h.flags = take8(in);
    say_header(a, &h);
}

static void raw(struct actor *a, struct input *in)
{
    size_t n = take8(in);

    n = n < in->left ? n : in->left;
    say(a, in->at, n);
    in->at += n;
    in->left -= n;
}

static void answer(struct actor *a, struct input *in)
{
    uint8_t flags = take8(in);

    if (a->seen_len == 0)
        return;
    say_answer(a, &a->seen[0], flags);
    forget_seen(a);
}

static void release(struct actor *a)
{
    if (a->written_len == 0)
        return;
    request(a, CLBI_READ_REL_REQ, NULL, a->written_id[0], a->written[0]);
    a->written_len--;
    memmove(a->written, a->written + 1, a->written_len * sizeof a->written[0]);
    memmove(a->written_id, a->written_id + 1, a->written_len * sizeof a->written_id[0]);
}

/* The metadata of a frame (wire section 9.3) whose numbers are the input's, of a split message, or none;
 * a trailer (9.1) that fits it, or lies, or has no mark. `what`: bits 0-1 what it is, 2 filler, 3-5 what is
 * wrong with the trailer. */
static void packet(struct actor *a, struct input *in)
{
    static const uint8_t mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                     0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};
    uint8_t meta[256] = {0xB9, 9, 0xB9, 2, 1, 2, 0xB9, 2, 3, 4, 5, 0xB9, 8}, end[24] = {2};
    size_t n = 0, trailer = sizeof end;
    const uint32_t stream = stream_of(a, in);
    uint32_t pixels = take8(in), claimed;
    pixels <<= take8(in) % 6;
    const uint8_t what = take8(in);

    if ((what & 3) == 1) {
        n = 13;
        for (int i = 0; i < 8; i++)
            meta[n++] = take8(in) & 0x7f;
        memcpy(meta + n, (const uint8_t[]){0xB9, 8, 33, 0, 0, 0, 0, 0, 0, 0, 0xB9, 5, 1, 2, 3, 4},
               16);
        n += 16;
        memcpy(meta + n, (const uint8_t[]){0x88, 0, 0, 0, 0, 0, 0}, 7);
        n += 7;
    } else if ((what & 3) == 2) {
        memcpy(meta, (const uint8_t[]){0xB9, 2, take8(in) & 0x7f, take8(in) & 0x7f}, 4);
        n = 4;
        end[0] = 51;
    }
    if (what & 4)
        n += take8(in) % 128;
    claimed = (uint32_t)n;
    switch (what >> 3 & 7) {
    case 1: claimed++; break;
    case 2: claimed = take32(in); break;
    case 3: trailer = 8; break;
    case 4: trailer = take8(in) % 24; break;
    default: break;
    }
    for (int i = 0; i < 4; i++)
        end[4 + i] = (uint8_t)(claimed >> 8 * i);
    memcpy(end + 8, mark, sizeof mark);
    if ((what >> 3 & 7) == 5)
        end[8 + take8(in) % 16] ^= 1;
    request(a, CLBI_WRITE_REQ, NULL, stream, (uint32_t)(pixels + n + trailer));
    say_fill(a, pixels);
    say(a, meta, n);
    say(a, end + (trailer < 8 ? sizeof end - trailer : 0), trailer);
}

void actor_act(struct actor *a, struct input *in, int64_t most_ns)
{
    char name[CLBI_WIRE_NAME];
    uint32_t stream, size;
    int64_t ns;

    switch ((enum actor_op)(take8(in) % ACT_COUNT)) {
    case ACT_RAW: raw(a, in); break;
    case ACT_HEADER: header(a, in); break;
    case ACT_PAYLOAD:
        size = take8(in);
        say_fill(a, (size_t)size << take8(in) % 6);
        break;
    case ACT_WRITE:
        stream = stream_of(a, in);
        size = take8(in);
        size <<= take8(in) % 6;
        request(a, CLBI_WRITE_REQ, NULL, stream, size);
        say_fill(a, size);
        break;
    case ACT_ANSWER: answer(a, in); break;
    case ACT_CREATE:
        actor_name(in, name);
        size = take8(in);
        size <<= take8(in) % 24;
        request(a, CLBI_CREATE_STREAM_REQ, name, a->host ? (unsigned char)name[0] : CLBI_ID_NONE,
                size);
        break;
    case ACT_RELEASE: release(a); break;
    case ACT_CHUNK:
        a->chunk = take8(in);
        a->chunks = 64;
        break;
    case ACT_TAKE: pull(a); break;
    case ACT_SHUT: a->shut_due = true; break;
    case ACT_CLOSE: a->close_due = true; break;
    case ACT_TIME:
        ns = take8(in) * 4 * MS;
        world_pass(ns < most_ns ? ns : most_ns);
        break;
    case ACT_PING: request(a, CLBI_PING_REQ, NULL, 0, 0); break;
    case ACT_RESET: request(a, CLBI_RESET_REQ, NULL, 0, 0); break;
    case ACT_CLOSE_STREAM:
        stream = stream_of(a, in);
        request(a, CLBI_CLOSE_STREAM_REQ, NULL, stream, 0);
        break;
    case ACT_PACKET: packet(a, in); break;
    case ACT_COUNT: break;
    }
}
