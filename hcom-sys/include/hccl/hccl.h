/*
 * HCCL: collectives and point-to-point operations.
 * A call returns when the operation is queued; failures appear at the synchronisation of the
 * stream or in HcclGetCommAsyncError. The NULL stream is refused (HCCL_E_PTR). A count of 0
 * returns HCCL_SUCCESS and takes no part.
 *
 * @library libhccl.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_HCCL_HCCL_H
#define HCOM_HCCL_HCCL_H

#include "../acl/acl_base.h"
#include "hccl_comm.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collectives. Counts are in elements; buffers are device memory; calls queue on `stream` and
 * must come in the same order on all ranks. */

/** recvBuf = reduction of all ranks' `count` elements, on every rank; sendBuf may be recvBuf. */
HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
    HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** The root's `count` elements to every rank. */
HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root,
    HcclComm comm, aclrtStream stream);

/** The reduction of all ranks' elements, on the root only; recvBuf is not NULL on any rank. */
HcclResult HcclReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
    HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream);

/** sendBuf holds one block of `recvCount` elements per rank; rank r gets the reduction of the
 * blocks r. */
HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount,
    HcclDataType dataType, HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** The same with blocks of different lengths: `sendCounts` and `sendDispls` are host arrays of
 * uint64_t, equal on all ranks. @since torch_npu 2.9 */
HcclResult HcclReduceScatterV(void *sendBuf, const void *sendCounts, const void *sendDispls,
    void *recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
    aclrtStream stream);

/** Block r of the root's sendBuf, `recvCount` elements, to rank r. */
HcclResult HcclScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType,
    uint32_t root, HcclComm comm, aclrtStream stream);

/** recvBuf = all ranks' `sendCount` elements in rank order. */
HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount,
    HcclDataType dataType, HcclComm comm, aclrtStream stream);

/** The same with blocks of different lengths: `recvCounts` and `recvDispls` are host arrays of
 * uint64_t. @since torch_npu 2.9 */
HcclResult HcclAllGatherV(void *sendBuf, uint64_t sendCount, void *recvBuf,
    const void *recvCounts, const void *recvDispls, HcclDataType dataType, HcclComm comm,
    aclrtStream stream);

/** Block r of sendBuf to rank r, and block s of recvBuf from rank s. sendBuf must not be
 * recvBuf. */
HcclResult HcclAlltoAll(const void *sendBuf, uint64_t sendCount, HcclDataType sendType,
    const void *recvBuf, uint64_t recvCount, HcclDataType recvType, HcclComm comm,
    aclrtStream stream);

/** The same with host arrays of uint64_t counts and displacements. */
HcclResult HcclAlltoAllV(const void *sendBuf, const void *sendCounts, const void *sdispls,
    HcclDataType sendType, const void *recvBuf, const void *recvCounts, const void *rdispls,
    HcclDataType recvType, HcclComm comm, aclrtStream stream);

/** The same with one host matrix: element i * ranks + j is what rank i sends to rank j.
 * @since torch_npu 2.9 */
HcclResult HcclAlltoAllVC(const void *sendBuf, const void *sendCountMatrix,
    HcclDataType sendType, const void *recvBuf, HcclDataType recvType, HcclComm comm,
    aclrtStream stream);

/* Point to point. */

/** Sends to one rank; the stream waits for the matching HcclRecv. */
HcclResult HcclSend(void *sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
    HcclComm comm, aclrtStream stream);

/** Receives from one rank; count and type equal the sender's. */
HcclResult HcclRecv(void *recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
    HcclComm comm, aclrtStream stream);

/** Sends and receives that do not block one another. */
HcclResult HcclBatchSendRecv(HcclSendRecvItem *sendRecvInfo, uint32_t itemNum, HcclComm comm,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
