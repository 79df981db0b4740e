/*
 * aclnn: start and end.
 *
 * @library libnnopbase.so
 */
#ifndef HCOM_ACLNN_ACLNN_BASE_H
#define HCOM_ACLNN_ACLNN_BASE_H

#include "acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Start and end. */

/** Starts the operator library; `configPath` is NULL or a JSON file. aclInit does it too. */
aclnnStatus aclnnInit(const char *configPath);

/** Ends it. */
aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
