/*
 * ACL: tensor descriptions.
 *
 * @library libacl_mdl.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_BASE_MDL_H
#define HCOM_ACL_ACL_BASE_MDL_H

#include "acl_base_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Element type, dimensions and layout of a tensor. */
typedef struct aclTensorDesc aclTensorDesc;

/* Tensor descriptions: dtype, dimensions and format, for offline models and aclop calls. */

/** A description with `numDims` dimensions; NULL on bad arguments. */
aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims,
    aclFormat format);

/** Frees a description. */
void aclDestroyTensorDesc(const aclTensorDesc *desc);

/** The element type. */
aclDataType aclGetTensorDescType(const aclTensorDesc *desc);

/** The layout. */
aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc);

/** Number of dimensions, or ACL_UNKNOWN_RANK. */
size_t aclGetTensorDescNumDims(const aclTensorDesc *desc);

/** Extent of dimension `index`; -1 when unknown. */
aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize);

/** Names the tensor. */
void aclSetTensorDescName(aclTensorDesc *desc, const char *name);

/** Sets the storage layout. */
aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format);

/** Sets the storage shape. */
aclError aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims);

/** Says where the data lies. */
aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType);

#ifdef __cplusplus
}
#endif

#endif
