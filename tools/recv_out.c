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

#include "npy_out.h"
#include "png_out.h"
#include "recv.h"

static bool is_folder(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

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
    if (mkdir(path, 0777) && (errno != EEXIST || !is_folder(path)))
        rc = errno == EEXIST ? ENOTDIR : errno;
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
    return rc ? report_errno(r, rc, o->dir, "; give a writable folder to --out") : 0;
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

static const char *hint_for(int number)
{
    switch (number) {
    case EISDIR: return "; a folder is in the way of this file, move it";
    case ENOSPC:
    case EDQUOT: return "; make space there, or save fewer frames (--every)";
    case EACCES:
    case EPERM:
    case EROFS: return "; give a writable folder to --out";
    default: return "; is the folder of --out in order?";
    }
}

/* Without a device the result is the picture. */
static int write_npy(const char *path, const struct recv_frame *f)
{
    const struct npy_shape picture = {.type = "|u1",
                                      .size = {f->rgb_size.height, f->rgb_size.width, 3}};

    if (f->tensor)
        return npy_write_file(path, f->tensor, f->tensor_bytes, &f->shape);
    return npy_write_file(path, f->rgb, (size_t)f->rgb_size.width * f->rgb_size.height * 3,
                          &picture);
}

int recv_out_frame(struct recv_out *o, struct report *r, const struct recv_frame *f)
{
    const bool png = o->save == SAVE_PNG, npy = o->save == SAVE_NPY;
    char name[48], *path;
    int rc;

    /* No picture: its metadata were bad, which the event of the frame shows. */
    if (npy ? !f->tensor && !f->rgb : png ? !f->rgb : !f->pixels)
        return 0;
    snprintf(name, sizeof name, "frame-%06llu.%s", (unsigned long long)f->info.seq,
             npy   ? "npy"
             : png ? "png"
                   : "raw");
    if (asprintf(&path, "%s/%s", o->dir, name) < 0)
        return report_fail(r, CLB_ERR_NOMEM, name, "out of memory");
    if (png)
        rc = png_write_file(path, f->rgb, f->rgb_size.width, f->rgb_size.height,
                            (size_t)f->rgb_size.width * 3, 3);
    else if (npy)
        rc = write_npy(path, f);
    else
        rc = write_raw(path, f->pixels, f->info.size);
    if (rc) {
        report_errno(r, rc, path, hint_for(rc));
    } else {
        json_begin(&r->out, "saved");
        json_uint(&r->out, "seq", f->info.seq);
        json_str(&r->out, "file", path);
        report_event(r);
    }
    free(path);
    return rc ? EXIT_FAILED : 0;
}
