/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of compiled programs, without a runtime: what is believed, what is removed, what is kept,
 * and that other processes see whole files.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "check.h"
#include "tempdir.h"

static atomic_uint lines;
static char last[512];

static void log_cb(void *priv, enum clb_log_level level, const char *msg)
{
    (void)priv;
    (void)level;
    atomic_fetch_add(&lines, 1);
    snprintf(last, sizeof last, "%s", msg);
    if (getenv("CLB_TEST_VERBOSE"))
        fprintf(stderr, "  log: %s\n", msg);
}

static const struct clb_log sink = {.cb = log_cb};
static const struct clbi_cache_key key = {"resample", "driver 1\nsource", 15};
static const char binary[] = "the program";

static char dir[TEMPDIR_PATH], path[2 * TEMPDIR_PATH];
static struct clbi_cache *cache;

static void begin(void)
{
    tempdir_make(dir);
    CHECK_EQ(clbi_cache_open(&cache, dir, &sink, NULL), CLB_OK);
    atomic_store(&lines, 0);
}

static void end(void)
{
    clbi_cache_close(&cache);
    CHECK(!cache);
    CHECK_EQ(tempdir_count(dir, ".clbtmp", NULL), 0);
    tempdir_remove(dir);
}

/* The file of the key, written. */
static void keep(void)
{
    char name[TEMPDIR_PATH];

    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(tempdir_count(dir, ".clbin", name), 1);
    CHECK(strncmp(name, "resample-", 9) == 0);
    snprintf(path, sizeof path, "%s/%s", dir, name);
}

static int get(const struct clbi_cache_key *k)
{
    const unsigned char *found = NULL;
    void *file = NULL;
    size_t size = 0;
    const int rc = clbi_cache_read(cache, k, &file, &found, &size);

    if (rc == 1) {
        CHECK_EQ(size, sizeof binary);
        CHECK(memcmp(found, binary, size) == 0);
    } else {
        CHECK_EQ(rc, 0);
        CHECK(!file);
    }
    free(file);
    return rc;
}

/* Not believed: one line that names the file, the file is gone, the next one takes its place. */
static void refused(const char *what)
{
    const unsigned before = atomic_load(&lines);

    if (get(&key) != 0) {
        fprintf(stderr, "believed: %s\n", what);
        _Exit(1);
    }
    CHECK_EQ(atomic_load(&lines), before + 1);
    CHECK(strstr(last, path) != NULL);
    CHECK(access(path, F_OK) != 0);
    CHECK_EQ(get(&key), 0);
    CHECK_EQ(atomic_load(&lines), before + 1);
    keep();
    CHECK_EQ(get(&key), 1);
}

static size_t load(unsigned char *to, size_t size)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    CHECK(f != NULL);
    n = fread(to, 1, size, f);
    fclose(f);
    return n;
}

static void store(const void *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0);
    CHECK_EQ(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

static void kept_and_found(void)
{
    const struct clbi_cache_key other = {"resample", "driver 2\nsource", 15};

    begin();
    CHECK_EQ(get(&key), 0);
    keep();
    CHECK_EQ(get(&key), 1);
    CHECK_EQ(get(&other), 0);
    clbi_cache_close(&cache);
    CHECK_EQ(clbi_cache_open(&cache, dir, &sink, NULL), CLB_OK);
    CHECK_EQ(get(&key), 1);
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0600);
    CHECK_EQ(atomic_load(&lines), 0);
    end();
}

static void every_byte_counts(void)
{
    unsigned char good[256], bad[256];
    size_t size;

    begin();
    keep();
    size = load(good, sizeof good);
    CHECK_EQ(size, 24 + key.size + sizeof binary + 8);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, size);
            bad[i] ^= (unsigned char)(1 << bit);
            store(bad, size);
            refused("a bit turned over");
        }
    }
    end();
}

static void every_length_counts(void)
{
    unsigned char bytes[256] = {0};
    size_t size;

    begin();
    keep();
    size = load(bytes, sizeof bytes);
    for (size_t n = 0; n < sizeof bytes; n++) {
        if (n == size)
            continue;
        store(bytes, n);
        refused("a file cut or too long");
    }
    end();
}

static void a_name_is_not_a_key(void)
{
    const struct clbi_cache_key other = {"resample", "driver 2\nsource", 15};
    char name[TEMPDIR_PATH], from[2 * TEMPDIR_PATH];

    begin();
    clbi_cache_write(cache, &other, binary, sizeof binary);
    CHECK_EQ(tempdir_count(dir, ".clbin", name), 1);
    snprintf(from, sizeof from, "%s/%s", dir, name);
    unlink(from);
    keep();
    unlink(path);
    clbi_cache_write(cache, &other, binary, sizeof binary);
    CHECK_EQ(rename(from, path), 0);
    refused("a file of another key");
    end();
}

static void something_else_in_its_place(void)
{
    char target[2 * TEMPDIR_PATH];

    begin();
    keep();
    snprintf(target, sizeof target, "%s/target", dir);
    CHECK_EQ(rename(path, target), 0);
    CHECK_EQ(symlink(target, path), 0);
    refused("a symbolic link");
    CHECK(access(target, R_OK) == 0);
    unlink(path);
    CHECK_EQ(mkfifo(path, 0600), 0);
    refused("a FIFO");
    CHECK_EQ(chmod(path, 0620), 0);
    refused("a file that the group may write");
    CHECK_EQ(chmod(path, 0602), 0);
    refused("a file that everybody may write");
    CHECK_EQ(truncate(path, (off_t)1 << 40), 0);
    refused("a sparse file of 1 TiB");
    end();
}

static void a_folder_in_its_place_does_no_harm(void)
{
    begin();
    keep();
    unlink(path);
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_EQ(get(&key), 0);
    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK(strstr(last, "cannot write") != NULL);
    CHECK_EQ(atomic_load(&lines), 2);
    end();
}

static void open_refused(const char *name, const char *says)
{
    struct clb_status st = {0};

    cache = (void *)&st;
    CHECK_EQ(clbi_cache_open(&cache, name, &sink, &st), CLB_ERR_INVAL);
    CHECK(!cache);
    CHECK_EQ(st.err, CLB_ERR_INVAL);
    if (!strstr(st.text, says)) {
        fprintf(stderr, "\"%s\" does not say \"%s\"\n", st.text, says);
        _Exit(1);
    }
    CHECK(strcmp(st.text, last) == 0);
}

static void folders_not_to_trust(void)
{
    static const mode_t bad[] = {0770, 0707, 0720, 0702, 0777};
    char name[2 * TEMPDIR_PATH], deep[6000];
    struct stat st;

    begin();
    clbi_cache_close(&cache);
    snprintf(name, sizeof name, "%s/new", dir);
    CHECK_EQ(mkdir(name, 0700), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_EQ(chmod(name, bad[i]), 0);
        open_refused(name, "chmod go-w");
        CHECK(strstr(last, name) != NULL);
    }
    if (geteuid() == 0) {
        CHECK_EQ(chmod(name, 0700), 0);
        CHECK_EQ(chown(name, 12345, 12345), 0);
        open_refused(name, "must belong to this user");
    }
    CHECK_EQ(rmdir(name), 0);
    CHECK_EQ(clbi_cache_open(&cache, name, &sink, NULL), CLB_OK); /* made */
    CHECK_EQ(stat(name, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0700);
    clbi_cache_close(&cache);
    CHECK_EQ(rmdir(name), 0);
    open_refused("", "name a folder");
    snprintf(name, sizeof name, "%s/a/b", dir);
    open_refused(name, strerror(ENOENT));
    snprintf(name, sizeof name, "%s/file", dir);
    close(open(name, O_WRONLY | O_CREAT, 0600));
    open_refused(name, strerror(ENOTDIR));
    memset(deep, 'a', sizeof deep);
    deep[0] = '/';
    deep[sizeof deep - 1] = 0;
    open_refused(deep, "cannot make the kernel cache /aaa");
    end();
}

static void a_folder_that_vanishes(void)
{
    begin();
    keep();
    unlink(path);
    CHECK_EQ(rmdir(dir), 0);
    CHECK_EQ(get(&key), 0);
    CHECK_EQ(atomic_load(&lines), 0);
    for (int i = 0; i < 3; i++)
        clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(atomic_load(&lines), 1);
    CHECK(strstr(last, strerror(ENOENT)) != NULL);
    clbi_cache_close(&cache);
}

static void a_disk_that_is_full(void)
{
    struct rlimit old, small;

    begin();
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 30;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_EQ(atomic_load(&lines), 1);
    CHECK(strstr(last, strerror(EFBIG)) != NULL);
    CHECK_EQ(tempdir_count(dir, "", NULL), 2); /* "." and ".." */
    keep();
    CHECK_EQ(get(&key), 1);
    end();
}

static void put_file(const char *name, time_t age)
{
    struct timespec times[2] = {{time(NULL) - age, 0}, {time(NULL) - age, 0}};

    snprintf(path, sizeof path, "%s/%s", dir, name);
    store("x", 1);
    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool there(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void the_folder_has_bounds(void)
{
    char name[TEMPDIR_PATH];

    begin();
    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(tempdir_count(dir, ".clbin", name), 1);
    CHECK(there(name));
    CHECK_EQ(unlink(path), 0);
    for (int i = 0; i < CLBI_CACHE_MAX_FILES + 20; i++) {
        char other[64];

        snprintf(other, sizeof other, "other-%03d.clbin", i);
        put_file(other, 10000 - i);
    }
    put_file("old.clbtmp", 10000);
    put_file("new.clbtmp", 10);
    put_file("mine.txt", 100000);
    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(tempdir_count(dir, ".clbin", NULL), CLBI_CACHE_MAX_FILES + 5);
    CHECK_EQ(get(&key), 1);
    CHECK(!there("other-015.clbin") && there("other-016.clbin"));
    clbi_cache_write(cache, &key, binary, sizeof binary);
    CHECK_EQ(tempdir_count(dir, ".clbin", NULL), CLBI_CACHE_MAX_FILES);
    CHECK(!there("other-020.clbin") && there("other-021.clbin"));
    CHECK(there("mine.txt") && there("new.clbtmp") && !there("old.clbtmp"));
    CHECK(there("new.clbtmp"));
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(atomic_load(&lines), 0);
    end();
}

/* What is read counts as used. */
static void the_used_ones_stay(void)
{
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    struct stat st;

    begin();
    keep();
    CHECK_EQ(utimensat(AT_FDCWD, path, old, 0), 0);
    CHECK_EQ(get(&key), 1);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_GT(st.st_mtim.tv_sec, 1000);
    end();
}

static void not_kept_when_too_large(void)
{
    begin();
    clbi_cache_write(cache, &key, binary, CLBI_CACHE_MAX_BYTES);
    CHECK_EQ(tempdir_count(dir, "", NULL), 2);
    CHECK_EQ(atomic_load(&lines), 0);
    end();
}

static void several_processes(void)
{
    enum { PROCESSES = 4, ROUNDS = 300 };
    pid_t pid[PROCESSES];

    begin();
    keep();
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        CHECK(pid[i] >= 0);
        if (pid[i] == 0) {
            for (int n = 0; n < ROUNDS; n++) {
                clbi_cache_write(cache, &key, binary, sizeof binary);
                CHECK_EQ(get(&key), 1);
            }
            _Exit(atomic_load(&lines) == 0 ? 0 : 2);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;

        CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(tempdir_count(dir, ".clbin", NULL), 1);
    end();
}

int main(void)
{
    check_watchdog(100);
    const int fds = check_fds();

    umask(022);
    kept_and_found();
    every_byte_counts();
    every_length_counts();
    a_name_is_not_a_key();
    something_else_in_its_place();
    a_folder_in_its_place_does_no_harm();
    folders_not_to_trust();
    a_folder_that_vanishes();
    a_disk_that_is_full();
    the_folder_has_bounds();
    the_used_ones_stay();
    not_kept_when_too_large();
    several_processes();
    CHECK_EQ(check_fds(), fds);
    return 0;
}
