/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled programs in a folder, for the next process. A file answers to a key: everything that its
 * content depends on. What is read is code that will run, so the folder must be ours alone, and a file
 * is believed only when every byte of it fits; any other file of that name is removed. Writers rename
 * whole files into place: readers in other processes see the old one or the new one.
 *
 * File (all numbers little-endian 64-bit):
 *   "CLBPROG1", size of the key, size of the binary, key, binary,
 *   FNV-1a 64 (draft-eastlake-fnv) of all bytes before.
 *
 * Threads: the caller's lock.
 */
#ifndef CLBI_CL_CACHE_H
#define CLBI_CL_CACHE_H

#include <clbridge/common.h>
#include <stddef.h>

/* The files that a folder may hold; one more makes those go that were used longest ago. */
#define CLBI_CACHE_MAX_FILES 256
/* A larger program is not kept, a larger file not read. */
#define CLBI_CACHE_MAX_BYTES ((size_t)64 << 20)

struct clbi_cache;

struct clbi_cache_key {
    const char *name; /* begins the name of the file; letters, digits, '_' */
    const void *bytes;
    size_t size;
};

/*
 * Opens the folder, which is made (0700) when only its last part is missing.
 * @return CLB_OK; INVAL (no folder, not ours, or others may write there; status tells), NOMEM.
 */
int clbi_cache_open(struct clbi_cache **out, const char *dir, const struct clb_log *log,
                    struct clb_status *status);

/* *cache becomes NULL. */
void clbi_cache_close(struct clbi_cache **cache);

/*
 * The binary of a key, and the file noted as used now.
 * @owner *file by the caller (free); *binary lies in it.
 * @return 1 = found; 0 = none, or a file that cannot be believed: logged and removed; NOMEM.
 */
int clbi_cache_read(struct clbi_cache *cache, const struct clbi_cache_key *key, void **file,
                    const unsigned char **binary, size_t *size);

/* Keeps a binary. What fails is logged once, at CLB_LOG_WARN, and does no harm. */
void clbi_cache_write(struct clbi_cache *cache, const struct clbi_cache_key *key,
                      const void *binary, size_t size);

/* Removes the file of a key: the runtime did not take what is in it. */
void clbi_cache_remove(struct clbi_cache *cache, const struct clbi_cache_key *key, const char *why);

/* What a file of `size` bytes says about the key; NULL when it is no whole file of it. */
const unsigned char *clbi_cache_parse(const void *file, size_t size,
                                      const struct clbi_cache_key *key, size_t *binary_size);

#endif
