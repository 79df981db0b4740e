/*
 * ACL: everything a host program needs.
 */
#ifndef HCOM_ACL_ACL_H
#define HCOM_ACL_ACL_H

#include "acl_base.h"
#include "acl_mdl.h"
#include "acl_op.h"
#include "acl_rt.h"

#endif
