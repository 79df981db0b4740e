/*
 * ACL: the base types.
 */
#ifndef HCOM_ACL_ACL_BASE_H
#define HCOM_ACL_ACL_BASE_H

#include "acl_base_mdl.h"
#include "acl_base_rt.h"

#endif
