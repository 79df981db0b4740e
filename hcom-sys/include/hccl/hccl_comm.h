/*
 * HCCL: communicators, their configuration, barrier.
 *
 * @library libhccl.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_HCCL_HCCL_COMM_H
#define HCOM_HCCL_HCCL_COMM_H

#include <string.h>
#include "../acl/acl_base.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A client links against these weakly: in a library without one, its address is NULL. */
#ifndef HCCL_WEAK
#define HCCL_WEAK __attribute__((weak))
#endif

/** Fills `config` with defaults. Part of the header, not of the library. */
static inline void HcclCommConfigInit(HcclCommConfig *config)
{
    const size_t size = sizeof(*config);
    const uint32_t head[2] = {HCCL_COMM_CONFIG_MAGIC_WORD, HCCL_COMM_CONFIG_VERSION};
    memset(config, 0, size);
    memcpy(config->reserved, &size, sizeof(size));
    memcpy(config->reserved + sizeof(size), head, sizeof(head));
    config->hcclBufferSize = HCCL_COMM_DEFAULT;
    config->hcclDeterministic = HCCL_COMM_DEFAULT;
    config->hcclRdmaTrafficClass = HCCL_COMM_DEFAULT;
    config->hcclRdmaServiceLevel = HCCL_COMM_DEFAULT;
    config->hcclExecTimeOut = -1;
    config->hcclQos = HCCL_COMM_DEFAULT;
    config->hcclSymWinMaxMemSizePerRank = 16;
    config->hcclChannelSqDepth = HCCL_COMM_DEFAULT;
}

/* Communicators. */

/** On the root: opens a meeting point and fills a ticket that every rank needs. A device must be
 * current. */
HCCL_WEAK HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo);

/** Joins a communicator of `nRanks` ranks; blocks until all have joined. A bad size or rank is
 * HCCL_E_PARA, checked before NULL pointers. */
HCCL_WEAK HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
    HcclComm *comm);

/** The same with a configuration that HcclCommConfigInit prepared; equal on all ranks. */
HCCL_WEAK HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo,
    uint32_t rank, const HcclCommConfig *config, HcclComm *comm);

/** Joins by a rank table, a JSON file. */
HCCL_WEAK HcclResult HcclCommInitClusterInfo(const char *clusterInfo, uint32_t rank, HcclComm *comm);

/** The same with a configuration. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommInitClusterInfoConfig(const char *clusterInfo, uint32_t rank,
    HcclCommConfig *config, HcclComm *comm);

/** One process, `ndev` devices: one communicator per device. */
HCCL_WEAK HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms);

/** A communicator over some ranks of a global one, in the order of `rankIds`. Ranks outside pass
 * NULL and 0xFFFFFFFF. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rankNum, uint32_t *rankIds,
    uint64_t subCommId, uint32_t subCommRankId, HcclCommConfig *config, HcclComm *subComm);

/** Destroys a communicator; NULL is allowed, an unknown handle is HCCL_E_PARA, one in use
 * HCCL_E_AGAIN. */
HCCL_WEAK HcclResult HcclCommDestroy(HcclComm comm);

/** Number of ranks. */
HCCL_WEAK HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize);

/** This rank's number. */
HCCL_WEAK HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank);

/** Name, at most COMM_NAME_MAX_LENGTH bytes with terminator; fused aclnn operators take it as
 * group. */
HCCL_WEAK HcclResult HcclGetCommName(HcclComm comm, char *commName);

/** The communicator with a name. @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclCommGetHandleWithName(const char *commName, HcclComm *comm);

/** State of the named communicator. @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclCommGetStatus(const char *commId, HcclCommStatus *status);

/** Whether a queued operation failed; returns HCCL_SUCCESS even then. */
HCCL_WEAK HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError);

/** A short text for a code; never NULL. */
HCCL_WEAK const char *HcclGetErrorString(HcclResult code);

/** Calls back around destroy and resume. @since 9.x */
HCCL_WEAK HcclResult HcclCommRegCommStateCallback(const char *regName, HcclCommStateCallback cb,
    void *args);

/* Configuration. */

/** A HcclCommConfigCapability is supported when it is below this number. A library without the
 * function supports none. @since torch_npu 2.9 */
HCCL_WEAK uint32_t HcclGetCommConfigCapability(void);

/** Sets a process-wide option; HCCL_DETERMINISTIC takes 0, 1 or 2. */
HCCL_WEAK HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue);

/** Reads a process-wide option. */
HCCL_WEAK HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue);

/** Reads a setting of a communicator into `infoLen` bytes. @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen,
    void *info);

/* Recovery. */

/** Collectives return HCCL_E_SUSPENDING until the communicator is resumed. */
HCCL_WEAK HcclResult HcclCommSuspend(HcclComm comm);

/** Undoes a suspension, after all ranks agreed to. */
HCCL_WEAK HcclResult HcclCommResume(HcclComm comm);

/** Switches ranks to their backup network device. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t *ranks, bool *useBackup,
    uint32_t nRanks);

/* Memory that peers may reach directly. */

/** Announces a range from aclrtReserveMemAddress; `alignment` and `flags` are 0.
 * @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommSetMemoryRange(HcclComm comm, void *baseVirPtr, size_t size,
    size_t alignment, uint64_t flags);

/** Takes the range back. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void *baseVirPtr);

/** Puts physical memory into part of the range; `offset` and `flags` are 0.
 * @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommActivateCommMemory(HcclComm comm, void *virPtr, size_t size, size_t offset,
    aclrtDrvMemHandle handle, uint64_t flags);

/** Takes that memory out. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void *virPtr);

/** All ranks together: registers `size` bytes as a symmetric window; `flag` is 1.
 * @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclCommSymWinRegister(HcclComm comm, void *addr, uint64_t size,
    HcclCommSymWindow *winHandle, uint32_t flag);

/** Ends a window. @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle);

/** The window that holds an address, and the offset in it. @since hcomm 2026-04 */
HCCL_WEAK HcclResult HcclCommSymWinGet(HcclComm comm, void *ptr, size_t size,
    HcclCommSymWindow *winHandle, size_t *offset);

/* Barrier and groups of calls. */

/** The stream waits until every rank's stream has reached its barrier; the host does not. */
HCCL_WEAK HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

/** Calls up to HcclGroupEnd are collected. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclGroupStart(void);

/** Runs the collected calls. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclGroupEnd(void);

/** Whether calls are being collected. @since 9.x */
HCCL_WEAK HcclResult HcclGroupStatusGet(bool *isGroupEnabled);

/* Entries of some HCCL releases only. */

/** One of several root tickets of a large communicator. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclGetRootInfoScalable(HcclRootInfo *rootInfo);

/** Joins by several tickets. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot,
    const HcclRootInfo *rootInfoList, uint32_t rank, uint32_t nExtRoot,
    const HcclCommConfig *config, HcclComm *comm);

/** Registers a buffer for direct access. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommRegister(HcclComm comm, void *addr, uint64_t size, void **handle,
    uint32_t flag);

/** Ends a registration. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommDeregister(HcclComm comm, void *handle);

/** Exchanges registered buffers with peers. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclCommExchangeMem(HcclComm comm, void *windowHandle, uint32_t *peerRanks,
    uint32_t peerRankNum);

/** Sets an option of one communicator. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclSetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue configValue);

/** Reads an option of one communicator. @since torch_npu 2.9 */
HCCL_WEAK HcclResult HcclGetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue *configValue);

#ifdef __cplusplus
}
#endif

#endif
