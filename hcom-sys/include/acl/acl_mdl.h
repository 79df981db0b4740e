/*
 * ACL: operator dumps. Offline models are not declared here.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_MDL_H
#define HCOM_ACL_ACL_MDL_H

#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operator dumps. */

/** Opens the dump service; after aclInit. */
aclError aclmdlInitDump(void);

/** Starts dumping as the JSON file at `dumpCfgPath` says. */
aclError aclmdlSetDump(const char *dumpCfgPath);

/** Closes the dump service. */
aclError aclmdlFinalizeDump(void);

#ifdef __cplusplus
}
#endif

#endif
