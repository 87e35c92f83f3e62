/* SPDX-License-Identifier: Apache-2.0 */
#include "tempdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

void tempdir_make(char path[TEMPDIR_PATH])
{
    const char *below = getenv("TMPDIR");
    const int n =
        snprintf(path, TEMPDIR_PATH, "%s/clb-test-XXXXXX", below && *below ? below : "/tmp");

    CHECK(n > 0 && n < TEMPDIR_PATH);
    CHECK(mkdtemp(path) != NULL);
}

void tempdir_remove(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlinkat(dirfd(d), e->d_name, 0) != 0)
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    closedir(d);
    CHECK_EQ(rmdir(path), 0);
}

unsigned tempdir_count(const char *path, const char *suffix, char last[TEMPDIR_PATH])
{
    DIR *d = opendir(path);
    const size_t s = strlen(suffix);
    struct dirent *e;
    unsigned count = 0;

    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL) {
        const size_t n = strlen(e->d_name);

        if (n <= s || strcmp(e->d_name + n - s, suffix) != 0)
            continue;
        count++;
        if (last)
            snprintf(last, TEMPDIR_PATH, "%s", e->d_name);
    }
    closedir(d);
    return count;
}
