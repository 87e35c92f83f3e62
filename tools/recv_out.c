/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of `recv`: one per frame, named by the packet sequence.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "png_out.h"
#include "recv.h"

/* mkdir -p */
static int make_folder(const char *dir)
{
    char *path = strdup(dir), *slash;
    int rc = 0;

    if (!path)
        return ENOMEM;
    for (slash = path + 1; *path && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    if (mkdir(path, 0777) && errno != EEXIST)
        rc = errno;
    free(path);
    return rc;
}

int recv_out_open(struct recv_out *o, struct report *r)
{
    int rc;

    if (o->save == SAVE_NOTHING)
        return 0;
    rc = make_folder(o->dir);
    if (!rc && access(o->dir, W_OK | X_OK))
        rc = errno;
    if (rc)
        return report_fail(r, CLB_ERR_IO, o->dir, "%s; give a writable folder to --out",
                           strerror(rc));
    return 0;
}

bool recv_out_wants(const struct recv_out *o, uint64_t seq)
{
    return o->save != SAVE_NOTHING && seq % o->every == 0;
}

static int write_raw(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wbe");
    int rc = 0;

    if (!file)
        return errno;
    errno = 0;
    if (fwrite(bytes, 1, size, file) != size)
        rc = errno ? errno : EIO;
    if (fclose(file) && !rc)
        rc = errno;
    if (rc)
        unlink(path);
    return rc;
}

int recv_out_frame(struct recv_out *o, struct report *r, const struct recv_frame *f,
                   struct arg_size size)
{
    bool png = o->save == SAVE_PNG;
    char name[48], *path;
    int rc;

    /* No picture: the packet was too small for one, which the event of the frame shows. */
    if (png ? !f->rgb : !f->pixels)
        return 0;
    snprintf(name, sizeof name, "frame-%06llu.%s", (unsigned long long)f->info.seq,
             png ? "png" : "raw");
    if (asprintf(&path, "%s/%s", o->dir, name) < 0)
        return report_fail(r, CLB_ERR_NOMEM, name, "out of memory");
    if (png)
        rc = png_write_file(path, f->rgb, size.width, size.height, (size_t)size.width * 3, 3);
    else
        rc = write_raw(path, f->pixels, f->info.size);
    if (rc) {
        report_fail(r, CLB_ERR_IO, path, "%s; is there space in the folder?", strerror(rc));
    } else {
        json_begin(&r->out, "saved");
        json_uint(&r->out, "seq", f->info.seq);
        json_str(&r->out, "file", path);
        report_event(r);
    }
    free(path);
    return rc ? EXIT_FAILED : 0;
}
