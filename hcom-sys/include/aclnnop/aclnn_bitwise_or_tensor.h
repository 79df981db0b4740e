/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_BITWISE_OR_TENSOR_H
#define HCOM_ACLNNOP_ACLNN_BITWISE_OR_TENSOR_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The disjunction of the two bit by bit, broadcast: integers and truth values. */
aclnnStatus aclnnBitwiseOrTensorGetWorkspaceSize(const aclTensor *self, const aclTensor *other,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnBitwiseOrTensor(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
