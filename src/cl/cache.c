/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of compiled programs: see cache.h. */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define MAGIC "CLBPROG1"
#define SUFFIX ".clbin"
#define TEMP_SUFFIX ".clbtmp"

enum {
    HEAD = 24, /* magic, two sizes */
    SUM = 8,
    MAX_NAME = 96,
    /* Files removed after one write: what is above the limit for another reason goes bit by bit. */
    MAX_REMOVED = 16,
    /* A temporary file of this age, seconds, has no writer any more. */
    STALE = 3600,
};

struct clbi_cache {
    int fd; /* of the folder: it stays the one that was checked, whatever its name becomes */
    bool complained;
    unsigned written; /* makes names of temporary files differ */
    struct clb_log log;
    char dir[]; /* for messages */
};

/* ---- the format ------------------------------------------------------------------------------ */

/* Each step is a bijection of the sum so far, so a single wrong byte always shows. */
static uint64_t fnv1a(uint64_t sum, const void *bytes, size_t size)
{
    const unsigned char *b = bytes;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ b[i]) * UINT64_C(0x100000001b3);
    return sum;
}
#define FNV1A_BASIS UINT64_C(0xcbf29ce484222325)

static void put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

const unsigned char *clbi_cache_parse(const void *file, size_t size,
                                      const struct clbi_cache_key *key, size_t *binary_size)
{
    const unsigned char *b = file;
    size_t rest;

    if (size < HEAD + SUM || size > CLBI_CACHE_MAX_BYTES || memcmp(b, MAGIC, 8) != 0)
        return NULL;
    rest = size - HEAD - SUM;
    if (get64(b + 8) != key->size || key->size > rest)
        return NULL;
    rest -= key->size;
    if (rest == 0 || get64(b + 16) != rest || memcmp(b + HEAD, key->bytes, key->size) != 0 ||
        get64(b + size - SUM) != fnv1a(FNV1A_BASIS, b, size - SUM))
        return NULL;
    *binary_size = rest;
    return b + HEAD + key->size;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Others could put code there that runs as us. The superuser could anyway. */
static bool ours_alone(const struct stat *st)
{
    return (st->st_uid == geteuid() || st->st_uid == 0) && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int clbi_cache_open(struct clbi_cache **out, const char *dir, const struct clb_log *log,
                    struct clb_status *status)
{
    const size_t length = strlen(dir);
    struct clbi_cache *c;
    struct stat st;
    int fd;

    *out = NULL;
    if (length == 0)
        return clbi_cl_fail(status, log, CLB_ERR_INVAL, 0,
                            "cache_dir is \"\": name a folder, or NULL for none");
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return clbi_cl_fail(status, log, CLB_ERR_INVAL, 0,
                            "cannot make the kernel cache %.300s: %s", dir, strerror(errno));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int code = errno;

        if (fd >= 0)
            close(fd);
        return clbi_cl_fail(status, log, CLB_ERR_INVAL, 0,
                            "cannot open the kernel cache %.300s: %s", dir, strerror(code));
    }
    if (!ours_alone(&st)) {
        close(fd);
        return clbi_cl_fail(status, log, CLB_ERR_INVAL, 0,
                            "the kernel cache %.300s must belong to this user and be writable by "
                            "nobody else (chmod go-w): what is in it will run",
                            dir);
    }
    c = calloc(1, sizeof *c + length + 1);
    if (!c) {
        close(fd);
        return clbi_cl_fail(status, log, CLB_ERR_NOMEM, 0, "kernel cache: no memory");
    }
    c->fd = fd;
    c->log = *log;
    memcpy(c->dir, dir, length + 1);
    *out = c;
    return CLB_OK;
}

void clbi_cache_close(struct clbi_cache **cache)
{
    if (!*cache)
        return;
    close((*cache)->fd);
    free(*cache);
    *cache = NULL;
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), s = strlen(suffix);

    return n > s && strcmp(name + n - s, suffix) == 0;
}

/* Removes temporary files that nobody writes any more. The oldest of the others; their number. */
static unsigned look_round(int fd, char oldest[MAX_NAME])
{
    const time_t now = time(NULL);
    struct timespec age = {0};
    unsigned count = 0;
    struct dirent *e;
    DIR *d = fdopendir(fd);

    oldest[0] = 0;
    if (!d) {
        close(fd);
        return 0;
    }
    while ((e = readdir(d)) != NULL) {
        const bool temp = ends_with(e->d_name, TEMP_SUFFIX);
        struct stat st;

        if ((!temp && !ends_with(e->d_name, SUFFIX)) || strlen(e->d_name) >= MAX_NAME ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (temp) {
            if (st.st_mtim.tv_sec < now - STALE)
                unlinkat(fd, e->d_name, 0);
            continue;
        }
        count++;
        if (!oldest[0] || st.st_mtim.tv_sec < age.tv_sec ||
            (st.st_mtim.tv_sec == age.tv_sec && st.st_mtim.tv_nsec < age.tv_nsec)) {
            age = st.st_mtim;
            memcpy(oldest, e->d_name, strlen(e->d_name) + 1); /* below MAX_NAME: looked at above */
        }
    }
    closedir(d);
    return count;
}

static void keep_bounds(const struct clbi_cache *c)
{
    char oldest[MAX_NAME];

    for (int i = 0; i < MAX_REMOVED; i++) {
        /* A new description: readdir() has a position, which is shared by duplicates. */
        const int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0 || look_round(fd, oldest) <= CLBI_CACHE_MAX_FILES ||
            unlinkat(c->fd, oldest, 0) != 0)
            return;
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void file_name(char out[MAX_NAME], const struct clbi_cache_key *key)
{
    snprintf(out, MAX_NAME, "%.40s-%016" PRIx64 SUFFIX, key->name,
             fnv1a(FNV1A_BASIS, key->bytes, key->size));
}

static bool read_all(int fd, unsigned char *to, size_t size)
{
    while (size > 0) {
        const ssize_t n = read(fd, to, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        size -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;

    while (size > 0) {
        const ssize_t n = write(fd, from, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        size -= (size_t)n;
    }
    return true;
}

void clbi_cache_remove(struct clbi_cache *c, const struct clbi_cache_key *key, const char *why)
{
    char name[MAX_NAME];
    bool gone;

    file_name(name, key);
    gone = unlinkat(c->fd, name, 0) == 0;
    clbi_cl_log(&c->log, CLB_LOG_WARN, "kernel cache: %.300s/%s %s: %s, compiled anew", c->dir,
                name, why, gone ? "removed" : strerror(errno));
}

int clbi_cache_read(struct clbi_cache *c, const struct clbi_cache_key *key, void **file,
                    const unsigned char **binary, size_t *size)
{
    char name[MAX_NAME];
    const char *why = NULL;
    struct stat st;
    size_t bytes = 0;
    int fd;

    *file = NULL;
    file_name(name, key);
    /* NONBLOCK: a FIFO of that name would wait for its other end. */
    fd = openat(c->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) != 0) {
        why = strerror(errno);
    } else if (!S_ISREG(st.st_mode) || !ours_alone(&st)) {
        why = "is no file that only this user can write";
    } else if (st.st_size < HEAD + SUM || (uintmax_t)st.st_size > CLBI_CACHE_MAX_BYTES) {
        why = "has a wrong size";
    } else {
        bytes = (size_t)st.st_size;
        *file = malloc(bytes);
        if (!*file) {
            close(fd);
            return CLB_ERR_NOMEM;
        }
        *binary = read_all(fd, *file, bytes) ? clbi_cache_parse(*file, bytes, key, size) : NULL;
        if (*binary)
            futimens(fd, NULL); /* may fail, where only the superuser writes */
        else
            why = "is damaged, or made for something else";
    }
    if (fd >= 0)
        close(fd);
    if (!why)
        return 1;
    free(*file);
    *file = NULL;
    clbi_cache_remove(c, key, why);
    return 0;
}

/* errno of what failed; 0 = all is written. */
static int write_file(int fd, const struct clbi_cache_key *key, const void *binary, size_t size)
{
    unsigned char head[HEAD] = MAGIC, sum[SUM];
    uint64_t check;

    put64(head + 8, key->size);
    put64(head + 16, size);
    check = fnv1a(FNV1A_BASIS, head, HEAD);
    check = fnv1a(check, key->bytes, key->size);
    put64(sum, fnv1a(check, binary, size));
    errno = ENOSPC; /* for a write of 0 bytes, which sets nothing */
    return write_all(fd, head, HEAD) && write_all(fd, key->bytes, key->size) &&
                   write_all(fd, binary, size) && write_all(fd, sum, SUM)
               ? 0
               : errno;
}

void clbi_cache_write(struct clbi_cache *c, const struct clbi_cache_key *key, const void *binary,
                      size_t size)
{
    char name[MAX_NAME], temp[MAX_NAME];
    int code = 0, fd;

    if (size > CLBI_CACHE_MAX_BYTES - HEAD - SUM - key->size)
        return;
    file_name(name, key);
    snprintf(temp, sizeof temp, "%.40s-%ld-%u-%" PRIx64 TEMP_SUFFIX, key->name, (long)getpid(),
             c->written++, (uint64_t)clbi_cl_now());
    fd = openat(c->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        code = errno;
    } else {
        code = write_file(fd, key, binary, size);
        if (close(fd) != 0 && code == 0)
            code = errno;
        if (code == 0 && renameat(c->fd, temp, c->fd, name) != 0)
            code = errno;
        if (code != 0)
            unlinkat(c->fd, temp, 0);
        else
            keep_bounds(c);
    }
    if (code != 0 && !c->complained) {
        c->complained = true;
        clbi_cl_log(
            &c->log, CLB_LOG_WARN,
            "kernel cache: cannot write %.300s/%s: %s; kernels are compiled by each process",
            c->dir, name, strerror(code));
    }
}
