/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_SLICE_V2_H
#define HCOM_ACLNNOP_ACLNN_SLICE_V2_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements from `starts` to `ends` (exclusive) by `steps` along `axes`. */
aclnnStatus aclnnSliceV2GetWorkspaceSize(const aclTensor *self, const aclIntArray *starts,
    const aclIntArray *ends, const aclIntArray *axes, const aclIntArray *steps, aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnSliceV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
