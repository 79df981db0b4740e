/*
 * HCCL: communicators, their configuration, barrier. Functions without @since are in CANN 8.0 and
 * later.
 *
 * @library libhccl.so
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
HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo) HCCL_WEAK;

/** Joins a communicator of `nRanks` ranks; blocks until all have joined. A bad size or rank is
 * HCCL_E_PARA, checked before NULL pointers. */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
    HcclComm *comm) HCCL_WEAK;

/** The same with a configuration that HcclCommConfigInit prepared; equal on all ranks. */
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
    const HcclCommConfig *config, HcclComm *comm) HCCL_WEAK;

/** Joins by a rank table, a JSON file. */
HcclResult HcclCommInitClusterInfo(const char *clusterInfo, uint32_t rank, HcclComm *comm) HCCL_WEAK;

/** The same with a configuration. @since torch_npu 2.9 */
HcclResult HcclCommInitClusterInfoConfig(const char *clusterInfo, uint32_t rank,
    HcclCommConfig *config, HcclComm *comm) HCCL_WEAK;

/** One process, `ndev` devices: one communicator per device. */
HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms) HCCL_WEAK;

/** A communicator over some ranks of a global one, in the order of `rankIds`. Ranks outside pass
 * NULL and 0xFFFFFFFF. @since torch_npu 2.9 */
HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rankNum, uint32_t *rankIds,
    uint64_t subCommId, uint32_t subCommRankId, HcclCommConfig *config, HcclComm *subComm) HCCL_WEAK;

/** Destroys a communicator; NULL is allowed, an unknown handle is HCCL_E_PARA, one in use
 * HCCL_E_AGAIN. */
HcclResult HcclCommDestroy(HcclComm comm) HCCL_WEAK;

/** Number of ranks. */
HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize) HCCL_WEAK;

/** This rank's number. */
HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank) HCCL_WEAK;

/** Name, at most COMM_NAME_MAX_LENGTH bytes with terminator; fused aclnn operators take it as group. */
HcclResult HcclGetCommName(HcclComm comm, char *commName) HCCL_WEAK;

/** The communicator with a name. @since hcomm 2026-04 */
HcclResult HcclCommGetHandleWithName(const char *commName, HcclComm *comm) HCCL_WEAK;

/** State of the named communicator. @since hcomm 2026-04 */
HcclResult HcclCommGetStatus(const char *commId, HcclCommStatus *status) HCCL_WEAK;

/** Whether a queued operation failed; returns HCCL_SUCCESS even then. */
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError) HCCL_WEAK;

/** A short text for a code; never NULL. */
const char *HcclGetErrorString(HcclResult code) HCCL_WEAK;

/** Calls back around destroy and resume. @since 9.x */
HcclResult HcclCommRegCommStateCallback(const char *regName, HcclCommStateCallback cb, void *args) HCCL_WEAK;

/* Configuration. */

/** A HcclCommConfigCapability is supported when it is below this number. A library without the
 * function supports none. @since torch_npu 2.9 */
uint32_t HcclGetCommConfigCapability(void) HCCL_WEAK;

/** Sets a process-wide option; HCCL_DETERMINISTIC takes 0, 1 or 2. */
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) HCCL_WEAK;

/** Reads a process-wide option. */
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue) HCCL_WEAK;

/** Reads a setting of a communicator into `infoLen` bytes. @since hcomm 2026-04 */
HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen, void *info) HCCL_WEAK;

/* Recovery. */

/** Collectives return HCCL_E_SUSPENDING until the communicator is resumed. */
HcclResult HcclCommSuspend(HcclComm comm) HCCL_WEAK;

/** Undoes a suspension, after all ranks agreed to. */
HcclResult HcclCommResume(HcclComm comm) HCCL_WEAK;

/** Switches ranks to their backup network device. @since torch_npu 2.9 */
HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t *ranks, bool *useBackup,
    uint32_t nRanks) HCCL_WEAK;

/* Memory that peers may reach directly. */

/** Announces a range from aclrtReserveMemAddress; `alignment` and `flags` are 0.
 * @since torch_npu 2.9 */
HcclResult HcclCommSetMemoryRange(HcclComm comm, void *baseVirPtr, size_t size, size_t alignment,
    uint64_t flags) HCCL_WEAK;

/** Takes the range back. @since torch_npu 2.9 */
HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void *baseVirPtr) HCCL_WEAK;

/** Puts physical memory into part of the range; `offset` and `flags` are 0. @since torch_npu 2.9 */
HcclResult HcclCommActivateCommMemory(HcclComm comm, void *virPtr, size_t size, size_t offset,
    aclrtDrvMemHandle handle, uint64_t flags) HCCL_WEAK;

/** Takes that memory out. @since torch_npu 2.9 */
HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void *virPtr) HCCL_WEAK;

/** All ranks together: registers `size` bytes as a symmetric window; `flag` is 1.
 * @since hcomm 2026-04 */
HcclResult HcclCommSymWinRegister(HcclComm comm, void *addr, uint64_t size,
    HcclCommSymWindow *winHandle, uint32_t flag) HCCL_WEAK;

/** Ends a window. @since hcomm 2026-04 */
HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle) HCCL_WEAK;

/** The window that holds an address, and the offset in it. @since hcomm 2026-04 */
HcclResult HcclCommSymWinGet(HcclComm comm, void *ptr, size_t size, HcclCommSymWindow *winHandle,
    size_t *offset) HCCL_WEAK;

/* Barrier and groups of calls. */

/** The stream waits until every rank's stream has reached its barrier; the host does not. */
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) HCCL_WEAK;

/** Calls up to HcclGroupEnd are collected. @since torch_npu 2.9 */
HcclResult HcclGroupStart(void) HCCL_WEAK;

/** Runs the collected calls. @since torch_npu 2.9 */
HcclResult HcclGroupEnd(void) HCCL_WEAK;

/** Whether calls are being collected. @since 9.x */
HcclResult HcclGroupStatusGet(bool *isGroupEnabled) HCCL_WEAK;

/* Entries of some HCCL releases only. */

/** One of several root tickets of a large communicator. @since torch_npu 2.9 */
HcclResult HcclGetRootInfoScalable(HcclRootInfo *rootInfo) HCCL_WEAK;

/** Joins by several tickets. @since torch_npu 2.9 */
HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot,
    const HcclRootInfo *rootInfoList, uint32_t rank, uint32_t nExtRoot,
    const HcclCommConfig *config, HcclComm *comm) HCCL_WEAK;

/** Registers a buffer for direct access. @since torch_npu 2.9 */
HcclResult HcclCommRegister(HcclComm comm, void *addr, uint64_t size, void **handle, uint32_t flag) HCCL_WEAK;

/** Ends a registration. @since torch_npu 2.9 */
HcclResult HcclCommDeregister(HcclComm comm, void *handle) HCCL_WEAK;

/** Exchanges registered buffers with peers. @since torch_npu 2.9 */
HcclResult HcclCommExchangeMem(HcclComm comm, void *windowHandle, uint32_t *peerRanks,
    uint32_t peerRankNum) HCCL_WEAK;

/** Sets an option of one communicator. @since torch_npu 2.9 */
HcclResult HcclSetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue configValue) HCCL_WEAK;

/** Reads an option of one communicator. @since torch_npu 2.9 */
HcclResult HcclGetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue *configValue) HCCL_WEAK;

#ifdef __cplusplus
}
#endif

#endif
