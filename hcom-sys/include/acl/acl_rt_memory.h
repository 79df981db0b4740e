/*
 * ACL runtime: memory, part of acl_rt.h.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_RT_MEMORY_H
#define HCOM_ACL_ACL_RT_MEMORY_H

#include "acl_rt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device and host memory. */

/** `size` bytes on the current device, 64-byte aligned, contents undefined. Size 0: 100000; none
 * left: 207001. */
aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);

/** The same without the 32 spare bytes that aclrtMalloc adds. */
aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy);

/** The same, cached for the host. */
aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy);

/** The same with policy bits and attributes; `cfg` may be NULL. @since torch_npu 2.9 */
aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
    aclrtMallocConfig *cfg);

/** Frees device memory at once, without waiting for work that uses it. NULL: 100000. */
aclError aclrtFree(void *devPtr);

/** Waits for the device, then frees. @since torch_npu 2.9 */
aclError aclrtFreeWithDevSync(void *devPtr);

/** `size` bytes of pinned host memory, 64-byte aligned. Size 0: 100000. */
aclError aclrtMallocHost(void **hostPtr, size_t size);

/** The same with attributes. @since torch_npu 2.9 */
aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg);

/** Frees pinned host memory. NULL: 100000. */
aclError aclrtFreeHost(void *hostPtr);

/** Memory that host and device share by migration; `flag` is ACL_RT_MEM_ATTACH_GLOBAL.
 * @since torch_npu 2.9 */
aclError aclrtMemAllocManaged(void **ptr, uint64_t size, uint32_t flag);

/** Free and total bytes of one kind of memory of the current device. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);

/** Bytes in use by component; `inputNum` entries fit, `outputNum` are filled.
 * @since torch_npu 2.9 */
aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo,
    size_t inputNum, size_t *outputNum);

/** Where an address lies and its page size. @since torch_npu 2.9 */
aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes);

/** Maps ordinary host memory for the device. @since torch_npu 2.9 */
aclError aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr);

/** The same with ACL_HOST_REG_ flags. @since torch_npu 2.9 */
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);

/** Device address of registered host memory. `flag` is 0. @since torch_npu 2.9 */
aclError aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag);

/** Ends the registration; an unknown address returns 507911. @since torch_npu 2.9 */
aclError aclrtHostUnregister(void *ptr);

/* Copies and fills. */

/** Copies now; `count` 0 does nothing. `destMax` below `count`: 107000. Not ordered with
 * streams. */
aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
    aclrtMemcpyKind kind);

/** Queues a copy. From ordinary (not pinned) host memory it returns after the copy. */
aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count,
    aclrtMemcpyKind kind, aclrtStream stream);

/** The same with a relaxed check of host addresses. @since torch_npu 2.9 */
aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src, size_t count,
    aclrtMemcpyKind kind, aclrtStream stream);

/** Copies `height` rows of `width` bytes between rows `dpitch` and `spitch` bytes apart. */
aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
    size_t height, aclrtMemcpyKind kind);

/** Queues such a copy. */
aclError aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
    size_t width, size_t height, aclrtMemcpyKind kind, aclrtStream stream);

/** Copies several ranges between host and device; `failIndex` names the first that failed.
 * @since torch_npu 2.9 */
aclError aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
    size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs,
    size_t *failIndex);

/** Queues such copies. @since torch_npu 2.9 */
aclError aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
    size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs,
    size_t *failIndex, aclrtStream stream);

/** Sets `count` bytes now to the low byte of `value`. */
aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);

/** Queues such a fill. */
aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count,
    aclrtStream stream);

/** Sets `N` 32-bit words now. @since torch_npu 2.9 */
aclError aclrtMemsetD32(void *ptr, size_t memSize, uint32_t value, size_t N);

/** Queues dst = dst op src over `count` bytes. @since torch_npu 2.9 */
aclError aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind,
    aclDataType type, aclrtStream stream, void *reserve);

/** Queues a cache hint over `size` bytes. @since torch_npu 2.9 */
aclError aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream);

/** Queues writing a 64-bit value to device memory. `flag` is 0. @since torch_npu 2.9 */
aclError aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream);

/** Queues a wait until the word at `devAddr` meets the ACL_STREAM_WAIT_VALUE_ condition.
 * @since torch_npu 2.9 */
aclError aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream);

/* Address ranges and physical memory. */

/** Reserves `size` bytes of address space; `flags` 1 asks for huge pages. */
aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr,
    uint64_t flags);

/** Gives a range back. */
aclError aclrtReleaseMemAddress(void *virPtr);

/** Physical memory without an address. */
aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size,
    const aclrtPhysicalMemProp *prop, uint64_t flags);

/** Frees it. */
aclError aclrtFreePhysical(aclrtDrvMemHandle handle);

/** Maps physical memory into a reserved range; `offset` and `flags` are 0. */
aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
    uint64_t flags);

/** Unmaps it. */
aclError aclrtUnmapMem(void *virPtr);

/** Lets devices reach a mapped range. @since torch_npu 2.9 */
aclError aclrtMemSetAccess(void *virPtr, size_t size, aclrtMemAccessDesc *desc, size_t count);

/** Multiple of bytes that sizes must have, typically 2 MiB. */
aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop,
    aclrtMemGranularityOptions option, size_t *granularity);

/* Memory shared between processes. */

/** A 64-bit handle of physical memory for other processes. */
aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle,
    aclrtMemHandleType handleType, uint64_t flags, uint64_t *shareableHandle);

/** Opens such a handle. */
aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId,
    aclrtDrvMemHandle *handle);

/** Names the processes that may open it. */
aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t *pid, size_t pidNum);

/** A key of a device range for other processes; `len` is 65 bytes. @since torch_npu 2.9 */
aclError aclrtIpcMemGetExportKey(void *devPtr, size_t size, char *key, size_t len,
    uint64_t flags);

/** Maps the range behind a key. @since torch_npu 2.9 */
aclError aclrtIpcMemImportByKey(void **devPtr, const char *key, uint64_t flags);

/** Names the processes that may import. @since torch_npu 2.9 */
aclError aclrtIpcMemSetImportPid(const char *key, int32_t *pid, size_t num);

/** Ends the sharing. @since torch_npu 2.9 */
aclError aclrtIpcMemClose(const char *key);

#ifdef __cplusplus
}
#endif

#endif
