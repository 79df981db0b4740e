/*
 * Kernels below ACL. Programs do not call these; libraries on top of ACL are linked against them.
 *
 * @library libruntime.so
 */
#ifndef HCOM_RUNTIME_KERNEL_H
#define HCOM_RUNTIME_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Result code of the layer below ACL: 0 is success, the numbers are those of aclError. */
typedef int32_t rtError_t;
/** A stream of the layer below ACL. */
typedef void *rtStream_t;
/** A kernel binary in memory. */
typedef struct rtDevBinary_t rtDevBinary_t;
/** Placement of a kernel's data in the cache. */
typedef struct rtSmDesc_t rtSmDesc_t;

/** Loads a kernel binary. */
rtError_t rtDevBinaryRegister(const rtDevBinary_t *bin, void **hdl);

/** Names a kernel of a binary. */
rtError_t rtFunctionRegister(void *binHandle, const void *stubFunc, const char *stubName,
    const void *kernelInfoExt, uint32_t funcMode);

/** Queues a kernel on `numBlocks` cores with `argsSize` bytes of arguments. */
rtError_t rtKernelLaunch(const void *stubFunc, uint32_t numBlocks, void *args,
    uint32_t argsSize, rtSmDesc_t *smDesc, rtStream_t stm);

#ifdef __cplusplus
}
#endif

#endif
