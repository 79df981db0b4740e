/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_ALL_GATHER_MATMUL_H
#define HCOM_ACLNNOP_ACLNN_ALL_GATHER_MATMUL_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** gatherOut = the rows of x1 of all ranks of group; output = gatherOut * x2 + bias. */
aclnnStatus aclnnAllGatherMatmulGetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const
    aclTensor *bias, const char *group, int64_t gatherIndex, int64_t commTurn, int64_t streamMode,
    const aclTensor *output, const aclTensor *gatherOut, uint64_t *workspaceSize,
    aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnAllGatherMatmul(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
