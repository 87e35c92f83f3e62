/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for libFuzzer's main in ordinary builds: feeds every file named on
 * the command line, or found in a folder named there, to the fuzz target once.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int feed_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, cap = 0, n;

    if (!f) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    do {
        if (size == cap) {
            uint8_t *more = realloc(data, cap = cap ? cap * 2 : 4096);
            if (!more)
                abort();
            data = more;
        }
        n = fread(data + size, 1, cap - size, f);
        size += n;
    } while (n > 0);
    fclose(f);

    /* A block of exactly that size, so that a sanitizer sees reads beyond it. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static int feed(const char *path, unsigned *count)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    if (!S_ISDIR(st.st_mode)) {
        ++*count;
        return feed_file(path);
    }
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = 0;
    if (!dir) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    while (rc == 0 && (entry = readdir(dir))) {
        char sub[4096];
        if (entry->d_name[0] == '.')
            continue;
        if ((size_t)snprintf(sub, sizeof sub, "%s/%s", path, entry->d_name) >= sizeof sub)
            continue;
        rc = feed(sub, count);
    }
    closedir(dir);
    return rc;
}

int main(int argc, char **argv)
{
    unsigned count = 0;

    for (int i = 1; i < argc; i++)
        if (feed(argv[i], &count) < 0)
            return 1;
    printf("%u inputs\n", count);
    return count > 0 ? 0 : 1;
}
