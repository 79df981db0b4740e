/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_PERMUTE_H
#define HCOM_ACLNNOP_ACLNN_PERMUTE_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Dimension i of out is dimension dims[i] of self. */
aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnPermute(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
