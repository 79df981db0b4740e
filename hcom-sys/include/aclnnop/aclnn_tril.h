/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_TRIL_H
#define HCOM_ACLNNOP_ACLNN_TRIL_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements on and below `diagonal`; 0 elsewhere. */
aclnnStatus aclnnTrilGetWorkspaceSize(const aclTensor *self, int64_t diagonal, aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnTril(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
