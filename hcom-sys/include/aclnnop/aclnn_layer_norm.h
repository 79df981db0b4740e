/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_LAYER_NORM_H
#define HCOM_ACLNNOP_ACLNN_LAYER_NORM_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Normalises over the last dimensions, `normalizedShape`; weight, bias, mean and rstd may be
 * NULL. */
aclnnStatus aclnnLayerNormGetWorkspaceSize(const aclTensor *input,
    const aclIntArray *normalizedShape, const aclTensor *weightOptional,
    const aclTensor *biasOptional, double eps, aclTensor *out, aclTensor *meanOutOptional,
    aclTensor *rstdOutOptional, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnLayerNorm(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
    aclrtStream stream);

/** aclnnLayerNorm with a choice between precision (0), speed (1) and 16-bit sums (2). */
aclnnStatus aclnnLayerNormWithImplModeGetWorkspaceSize(const aclTensor *input, const
    aclIntArray *normalizedShape, const aclTensor *weightOptional, const aclTensor *biasOptional,
    double eps, aclTensor *out, aclTensor *meanOutOptional, aclTensor *rstdOutOptional, int32_t
    implMode, uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnLayerNormWithImplMode(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
