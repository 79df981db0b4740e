/*
 * ACL runtime: the caller's own allocator.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_RT_ALLOCATOR_H
#define HCOM_ACL_ACL_RT_ALLOCATOR_H

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A description of an allocator. */
typedef void *aclrtAllocatorDesc;
/** The caller's object. */
typedef void *aclrtAllocator;
/** A block of memory as the caller knows it. */
typedef void *aclrtAllocatorBlock;
/** A device address. */
typedef void *aclrtAllocatorAddr;
/** Allocates a block of `size` bytes. */
typedef void *(*aclrtAllocatorAllocFunc)(aclrtAllocator allocator, size_t size);
/** Frees a block. */
typedef void (*aclrtAllocatorFreeFunc)(aclrtAllocator allocator, aclrtAllocatorBlock block);
/** Allocates a block of `size` bytes, at `addr` if possible. */
typedef void *(*aclrtAllocatorAllocAdviseFunc)(
    aclrtAllocator allocator, size_t size, aclrtAllocatorAddr addr);
/** Device address of a block. */
typedef void *(*aclrtAllocatorGetAddrFromBlockFunc)(aclrtAllocatorBlock block);

/* Memory from the caller's own allocator. */

/** An empty description; NULL on failure. */
aclrtAllocatorDesc aclrtAllocatorCreateDesc(void);

/** Frees a description. */
aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc);

/** Sets the object that the functions receive. */
aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator);

/** Sets the function that allocates a block. */
aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorAllocFunc func);

/** Sets the function that frees a block. */
aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorFreeFunc func);

/** Sets the function that allocates at a wished address. */
aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorAllocAdviseFunc func);

/** Sets the function that gives a block's device address. */
aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorGetAddrFromBlockFunc func);

/** Operators on the stream take their workspace from this allocator. */
aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc);

/** Ends that. */
aclError aclrtAllocatorUnregister(aclrtStream stream);

/** The allocator registered for a stream. @since torch_npu 2.9 */
aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc *allocatorDesc,
    aclrtAllocator *allocator, aclrtAllocatorAllocFunc *allocFunc,
    aclrtAllocatorFreeFunc *freeFunc, aclrtAllocatorAllocAdviseFunc *allocAdviseFunc,
    aclrtAllocatorGetAddrFromBlockFunc *getAddrFromBlockFunc);

#ifdef __cplusplus
}
#endif

#endif
