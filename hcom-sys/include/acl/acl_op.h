/*
 * ACL: attributes of single operators.
 *
 * @library libacl_op_executor.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_OP_H
#define HCOM_ACL_ACL_OP_H

#include "acl_base.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Attributes of an operator. */
typedef struct aclopAttr aclopAttr;

/* Attributes of single operators called by name. */

/** An empty attribute list. */
aclopAttr *aclopCreateAttr(void);

/** Frees an attribute list. */
void aclopDestroyAttr(const aclopAttr *attr);

/** Sets a boolean attribute (0 or 1). */
aclError aclopSetAttrBool(aclopAttr *attr, const char *attrName, uint8_t attrValue);

/** Sets an element-type attribute. */
aclError aclopSetAttrDataType(aclopAttr *attr, const char *attrName, aclDataType attrValue);

/** Sets a float attribute. */
aclError aclopSetAttrFloat(aclopAttr *attr, const char *attrName, float attrValue);

/** Sets an integer attribute. */
aclError aclopSetAttrInt(aclopAttr *attr, const char *attrName, int64_t attrValue);

/** Sets a text attribute. */
aclError aclopSetAttrString(aclopAttr *attr, const char *attrName, const char *attrValue);

/** Sets a list of booleans. */
aclError aclopSetAttrListBool(aclopAttr *attr, const char *attrName, int numValues,
    const uint8_t *values);

/** Sets a list of floats. */
aclError aclopSetAttrListFloat(aclopAttr *attr, const char *attrName, int numValues,
    const float *values);

/** Sets a list of integers. */
aclError aclopSetAttrListInt(aclopAttr *attr, const char *attrName, int numValues,
    const int64_t *values);

/** Sets a list of integer lists; `numValues` has one length per list. */
aclError aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists,
    const int *numValues, const int64_t *const values[]);

#ifdef __cplusplus
}
#endif

#endif
