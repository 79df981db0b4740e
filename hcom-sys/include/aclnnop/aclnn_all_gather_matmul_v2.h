/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_ALL_GATHER_MATMUL_V2_H
#define HCOM_ACLNNOP_ACLNN_ALL_GATHER_MATMUL_V2_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** aclnnAllGatherMatmul with the parameters of quantised products, which are absent here. */
aclnnStatus aclnnAllGatherMatmulV2GetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const
    aclTensor *bias, const aclTensor *x1Scale, const aclTensor *x2Scale, const
    aclTensor *quantScale, int64_t blockSize, const char *group, int64_t gatherIndex, int64_t
    commTurn, int64_t streamMode, int64_t groupSize, const char *commMode, aclTensor *output,
    aclTensor *gatherOut, aclTensor *amaxOut, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnAllGatherMatmulV2(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
