/*
 * Extensions that only hcom's CPU implementation of ACL and HCCL exports. Callers look each
 * function up and do without it where it is missing, as in every library for real devices.
 *
 * @library libhcom_fake_so.so
 */
#ifndef HCOM_EXT_H
#define HCOM_EXT_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory that the host may touch. */

/** Host address of `bytes` bytes of device memory that this process allocated; valid until they
 * are freed. A range outside one allocation: 107000. The caller orders its accesses with the
 * streams. */
aclError hcomExtHostPointer(const void *devPtr, size_t bytes, void **hostPtr);

/* The modelled link: a transfer takes alphaUs + op factor * bytes / bandwidth. */

/** Start-up time in microseconds and bandwidth in 10^9 bytes per second; both 0: no link is
 * modelled. 16 bytes. */
typedef struct hcomExtLink {
    double alphaUs;
    double gbytesPerS;
} hcomExtLink;

/** The link in force in this process. */
aclError hcomExtGetLink(hcomExtLink *link);

/** Sets the link for operations queued later in this process; all ranks set the same. Negative or
 * not finite, or a bandwidth of 0 with a start-up time: 100000. */
aclError hcomExtSetLink(const hcomExtLink *link);

/* Faults on demand. */

/** Where a fault strikes. */
typedef enum hcomExtFaultStage {
    HCOM_EXT_FAULT_CALL = 0, /**< The call itself returns the code and does nothing. */
    HCOM_EXT_FAULT_TASK = 1, /**< The call queues work that fails with the code. */
} hcomExtFaultStage;

/** Makes the `nth` following call (1 is the next) of the function `symbol` in this process fail
 * with `code`, once. An unknown name, `nth` 0 or code 0: 100000. */
aclError hcomExtInjectFault(const char *symbol, uint64_t nth, int32_t code,
    hcomExtFaultStage stage);

/** Plans faults of operations (collectives, sends and receives) and kernels that begin from now on in this
 * process, beside those planned before. The text is that of the environment variable
 * HCOM_FAKE_FAULT: faults with `;` between, each of fields with `,` between:
 *
 *   op=N         the N-th operation from now (from 1) of those that the other fields let through;
 *                each communicator counts for itself, in the order in which it runs them
 *   do=ACTION    kill (SIGKILL), stop (SIGSTOP), delay:TIME (us, ms or s behind a whole number),
 *                drop (the operation does nothing and succeeds), error:CODE (of the runtime)
 *   rank=R       optional: on this rank of the communicator only
 *   kind=NAME    optional: operations of this name only, such as all_reduce or batch_send_recv
 *   comm=NAME    optional: on communicators of this name only
 *   kernel=NAME  instead of those: kernels of this operator, such as aclnnRelu; each stream counts
 *                for itself
 *   device=D     optional, with kernel=: on this device only
 *
 * A text that is not so: 100000, and aclGetRecentErrMsg names the fault and the field. */
aclError hcomExtPlanFaults(const char *faults);

/** Forgets all faults that have not struck, those of the environment too. */
aclError hcomExtClearFaults(void);

#ifdef __cplusplus
}
#endif

#endif
