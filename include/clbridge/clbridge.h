/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/clbridge.h: everything but OpenCL. Programs that use OpenCL include clbridge/cl.h too.
 */
#ifndef CLBRIDGE_CLBRIDGE_H
#define CLBRIDGE_CLBRIDGE_H

#include <clbridge/buffer.h>
#include <clbridge/common.h>
#include <clbridge/depthai.h>
#include <clbridge/image.h>
#include <clbridge/link.h>
#include <clbridge/stream.h>

#endif /* CLBRIDGE_CLBRIDGE_H */
