/*
 * aclnn operators. NAMEGetWorkspaceSize checks the arguments and says how many bytes of device
 * memory NAME needs; NAME queues the work and consumes the executor.
 *
 * @library libopapi.so
 */
#ifndef HCOM_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_H
#define HCOM_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_H

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Attention of one position over cached keys and values; layouts BSH, BSND, BNSD. */
aclnnStatus aclnnIncreFlashAttentionGetWorkspaceSize(const aclTensor *query, const
    aclTensorList *key, const aclTensorList *value, const aclTensor *pseShift, const
    aclTensor *attenMask, const aclIntArray *actualSeqLengths, int64_t numHeads, double
    scaleValue, char *inputLayout, int64_t numKeyValueHeads, const aclTensor *attentionOut,
    uint64_t *workspaceSize, aclOpExecutor **executor);
/** Queues the prepared call. */
aclnnStatus aclnnIncreFlashAttention(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
