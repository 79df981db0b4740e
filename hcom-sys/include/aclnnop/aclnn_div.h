/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_DIV_H
#define HCOM_ACLNNOP_ACLNN_DIV_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** out = self / other, broadcast. */
aclnnStatus aclnnDivGetWorkspaceSize(const aclTensor *self, const aclTensor *other,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnDiv(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

/** out = self / other for a scalar. */
aclnnStatus aclnnDivsGetWorkspaceSize(const aclTensor *self, const aclScalar *other,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnDivs(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

/** Quotient with broadcasting: exact (mode 0), rounded toward zero (mode 1) or down (mode 2). */
aclnnStatus aclnnDivModGetWorkspaceSize(const aclTensor *self, const aclTensor *other, int mode,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnDivMod(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
