/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device with a folder for compiled kernels, on the double: the second process does not compile, what
 * the runtime does not take is made again, two threads compile once, and no call that fails makes
 * anything else fail.
 */
#include <clbridge/preprocess.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool_kit.h"
#include "tempdir.h"

static char dir[TEMPDIR_PATH];
static atomic_uint lines;

static int device(clb_cl_device **dev, const char *cache_dir, struct clb_status *st)
{
    return clbi_cl_device_create_with(&dbl_fns, dev,
                                      clb_cl_device_params(.cache_dir = cache_dir, .status = st,
                                                           .log.cb = kit_log, .log.priv = &lines));
}

static int recipe(clb_preprocess **pp, clb_cl_device *dev)
{
    struct clb_image img;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 64, 32, 1, 1), CLB_OK);
    return clb_preprocess_create(pp, dev, clb_preprocess_params(.src = &img));
}

/* What a process does: a device, a recipe, the end. What was compiled, and taken from binaries. */
struct did {
    int device, recipe;
    unsigned lines;
    uint64_t sources, binaries;
};

static struct did process(const char *cache_dir, enum dbl_fn fails, unsigned n, cl_int code)
{
    struct did did = {0};
    clb_cl_device *dev = NULL;
    clb_preprocess *pp = NULL;

    dbl_start(true);
    atomic_store(&lines, 0);
    if (n)
        dbl_fail(fails, n, 1, code);
    did.device = device(&dev, cache_dir, NULL);
    if (did.device == CLB_OK)
        did.recipe = recipe(&pp, dev);
    did.sources = dbl_calls(DBL_CreateProgramWithSource);
    did.binaries = dbl_calls(DBL_CreateProgramWithBinary);
    clb_preprocess_destroy(&pp);
    clb_cl_device_destroy(&dev);
    did.lines = atomic_load(&lines);
    dbl_settle();
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
    return did;
}
#define CLEAN(dir) process(dir, DBL_FN_COUNT, 0, 0)

static unsigned files(void)
{
    CHECK_EQ(tempdir_count(dir, ".clbtmp", NULL), 0);
    return tempdir_count(dir, ".clbin", NULL);
}

static void check_did(struct did did, unsigned sources, unsigned binaries, unsigned log_lines)
{
    CHECK_EQ(did.device, CLB_OK);
    CHECK_EQ(did.recipe, CLB_OK);
    CHECK_EQ(did.sources, sources);
    CHECK_EQ(did.binaries, binaries);
    CHECK_EQ(did.lines, log_lines);
}

static void the_second_process_does_not_compile(void)
{
    tempdir_make(dir);
    check_did(CLEAN(NULL), 1, 0, 0);
    CHECK_EQ(files(), 0);
    check_did(CLEAN(dir), 1, 0, 0);
    CHECK_EQ(files(), 1);
    check_did(CLEAN(dir), 0, 1, 0);
    check_did(CLEAN(dir), 0, 1, 0);
    check_did(CLEAN(NULL), 1, 0, 0);
    CHECK_EQ(files(), 1);
    tempdir_remove(dir);
}

static void a_damaged_file_is_made_again(void)
{
    char name[TEMPDIR_PATH], path[2 * TEMPDIR_PATH];
    struct stat st;
    char byte;

    tempdir_make(dir);
    check_did(CLEAN(dir), 1, 0, 0);
    CHECK_EQ(tempdir_count(dir, ".clbin", name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_EQ(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at += st.st_size / 97) {
        const int fd = open(path, O_RDWR);

        CHECK_EQ(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        check_did(CLEAN(dir), 1, 0, 1);
        check_did(CLEAN(dir), 0, 1, 0);
    }
    tempdir_remove(dir);
}

/* A driver may change without a new version: its own word counts. */
static void what_the_runtime_does_not_take(void)
{
    static const enum dbl_fn fns[] = {DBL_CreateProgramWithBinary, DBL_BuildProgram,
                                      DBL_CreateKernel};
    static const cl_int codes[] = {CL_INVALID_BINARY, CL_BUILD_PROGRAM_FAILURE,
                                   CL_INVALID_KERNEL_NAME};

    tempdir_make(dir);
    check_did(CLEAN(dir), 1, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        check_did(process(dir, fns[i], 1, codes[i]), 1, 1, 1);
        CHECK_EQ(files(), 1);
        check_did(CLEAN(dir), 0, 1, 0);
    }
    tempdir_remove(dir);
}

/* That is no word about the file. */
static void a_runtime_without_memory(void)
{
    char name[TEMPDIR_PATH], path[2 * TEMPDIR_PATH];
    struct stat before, after;

    tempdir_make(dir);
    check_did(CLEAN(dir), 1, 0, 0);
    CHECK_EQ(tempdir_count(dir, ".clbin", name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_EQ(stat(path, &before), 0);
    check_did(process(dir, DBL_CreateProgramWithBinary, 1, CL_OUT_OF_HOST_MEMORY), 1, 1, 0);
    CHECK_EQ(stat(path, &after), 0);
    CHECK_GE(after.st_size, before.st_size);
    check_did(CLEAN(dir), 0, 1, 0);
    tempdir_remove(dir);
}

static void a_refused_folder_is_a_device_refused(void)
{
    struct clb_status st = {0};
    clb_cl_device *dev = (void *)&st;

    tempdir_make(dir);
    CHECK_EQ(chmod(dir, 0777), 0);
    dbl_start(true);
    CHECK_EQ(device(&dev, dir, &st), CLB_ERR_INVAL);
    CHECK(!dev);
    CHECK_EQ(st.err, CLB_ERR_INVAL);
    CHECK(strstr(st.text, dir) && strstr(st.text, "chmod"));
    CHECK_EQ(dbl_finish(), 0);
    tempdir_remove(dir);
}

static void *make_recipe(void *dev)
{
    clb_preprocess *pp = NULL;

    CHECK_EQ(recipe(&pp, dev), CLB_OK);
    return pp;
}

static void two_threads_compile_once(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    clb_cl_device *dev = NULL;

    tempdir_make(dir);
    dbl_start(true);
    CHECK_EQ(device(&dev, dir, NULL), CLB_OK);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, make_recipe, dev), 0);
    for (int i = 0; i < THREADS; i++) {
        void *pp = NULL;

        CHECK_EQ(pthread_join(thread[i], &pp), 0);
        clb_preprocess_destroy((clb_preprocess **)&pp);
    }
    CHECK_EQ(dbl_calls(DBL_CreateProgramWithSource), 1);
    clb_cl_device_destroy(&dev);
    dbl_settle();
    CHECK_EQ(dbl_finish(), 0);
    CHECK_EQ(files(), 1);
    tempdir_remove(dir);
}

/* Each call of the runtime that the cache needs fails, the n-th time, cold and warm: the recipe may
 * fail when compiling failed, or all goes well; the next process is as ever. */
static void every_call_fails(void)
{
    static const enum dbl_fn fns[] = {
        DBL_GetPlatformInfo, DBL_GetProgramInfo,     DBL_CreateProgramWithBinary,
        DBL_BuildProgram,    DBL_CreateKernel,       DBL_CreateProgramWithSource,
        DBL_RetainProgram,   DBL_GetProgramBuildInfo};
    unsigned failed = 0;

    for (unsigned i = 0; i < sizeof fns / sizeof *fns; i++) {
        for (unsigned n = 1; n <= 8; n++) {
            for (int warm = 0; warm < 2; warm++) {
                struct did did;

                tempdir_make(dir);
                if (warm)
                    check_did(CLEAN(dir), 1, 0, 0);
                did = process(dir, fns[i], n, CL_OUT_OF_RESOURCES);
                CHECK((did.device == CLB_OK && did.recipe == CLB_OK) || did.lines > 0);
                failed += did.device != CLB_OK || did.recipe != CLB_OK;
                did = CLEAN(dir);
                CHECK_EQ(did.device, CLB_OK);
                CHECK_EQ(did.recipe, CLB_OK);
                CHECK_EQ(did.sources + did.binaries, 1);
                CHECK_EQ(did.lines, 0);
                CHECK_LE(files(), 2); /* a platform that could not tell its name is another one */
                tempdir_remove(dir);
            }
        }
    }
    CHECK_GT(failed, 0);
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(the_second_process_does_not_compile),
        KIT_TEST(a_damaged_file_is_made_again),
        KIT_TEST(what_the_runtime_does_not_take),
        KIT_TEST(a_runtime_without_memory),
        KIT_TEST(a_refused_folder_is_a_device_refused),
        KIT_TEST(two_threads_compile_once),
        KIT_TEST(every_call_fails),
    };

    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
    kit_run(tests, sizeof tests / sizeof *tests);
    check_back_to(fds, threads);
    return 0;
}
