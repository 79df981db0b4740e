/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_SPLIT_WITH_SIZE_H
#define HCOM_ACLNNOP_ACLNN_SPLIT_WITH_SIZE_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Pieces of self along dim of the sizes given. */
aclnnStatus aclnnSplitWithSizeGetWorkspaceSize(const aclTensor *self, const
    aclIntArray *splitSize, int64_t dim, aclTensorList *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnSplitWithSize(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
