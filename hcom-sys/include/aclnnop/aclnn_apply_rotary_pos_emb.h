/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_APPLY_ROTARY_POS_EMB_H
#define HCOM_ACLNNOP_ACLNN_APPLY_ROTARY_POS_EMB_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Turns query and key in place, in mode half; layouts 1 BSND, 2 SBND, 3 BNSD. */
aclnnStatus aclnnApplyRotaryPosEmbGetWorkspaceSize(aclTensor *queryRef, aclTensor *keyRef, const
    aclTensor *cos, const aclTensor *sin, int64_t layout, uint64_t *workspaceSize,
    aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnApplyRotaryPosEmb(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
