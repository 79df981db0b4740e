/*
 * ACL: profiling.
 *
 * @library libmsprofiler.so
 */
#ifndef HCOM_ACL_ACL_PROF_H
#define HCOM_ACL_ACL_PROF_H

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What to record. */
typedef struct aclprofConfig aclprofConfig;
/** A handle for marking iterations. */
typedef struct aclprofStepInfo aclprofStepInfo;
/** User-defined counters; pass NULL. */
typedef struct aclprofAicoreEvents aclprofAicoreEvents;

/** Counters of the AI cores. */
typedef enum aclprofAicoreMetrics {
    ACL_AICORE_ARITHMETIC_UTILIZATION = 0,
    ACL_AICORE_PIPE_UTILIZATION = 1,
    ACL_AICORE_MEMORY_BANDWIDTH = 2,
    ACL_AICORE_L0B_AND_WIDTH = 3,
    ACL_AICORE_RESOURCE_CONFLICT_RATIO = 4,
    ACL_AICORE_MEMORY_UB = 5,
    ACL_AICORE_L2_CACHE = 6,
    ACL_AICORE_PIPE_EXECUTE_UTILIZATION = 7,
    ACL_AICORE_MEMORY_ACCESS = 8,
    ACL_AICORE_NONE = 255,
} aclprofAicoreMetrics;

/** Options of aclprofSetConfig. */
typedef enum aclprofConfigType {
    ACL_PROF_ARGS_MIN = 0,
    ACL_PROF_STORAGE_LIMIT = 1,
    ACL_PROF_SYS_HARDWARE_MEM_FREQ = 3,
    ACL_PROF_LLC_MODE = 4,
    ACL_PROF_SYS_IO_FREQ = 5,
    ACL_PROF_SYS_INTERCONNECTION_FREQ = 6,
    ACL_PROF_DVPP_FREQ = 7,
    ACL_PROF_HOST_SYS = 8,
    ACL_PROF_HOST_SYS_USAGE = 9,
    ACL_PROF_HOST_SYS_USAGE_FREQ = 10,
    ACL_PROF_LOW_POWER_FREQ = 11,
    ACL_PROF_SYS_MEM_SERVICEFLOW = 12,
    ACL_PROF_SYS_CPU_FREQ = 13,
    ACL_PROF_OPTYPE = 14,
    ACL_PROF_NTS_METRICS = 15,
    ACL_PROF_PATH = 16,
    ACL_PROF_ARGS_MAX = 17,
} aclprofConfigType;

/** Start or end of an iteration. */
typedef enum aclprofStepTag {
    ACL_STEP_START = 0,
    ACL_STEP_END = 1,
} aclprofStepTag;

/* Bits of what to record. */

#define ACL_PROF_ACL_API        0x0001
#define ACL_PROF_AICORE_METRICS 0x0004
#define ACL_PROF_AICORE_SHAPE   0x800000000
#define ACL_PROF_AICPU          0x0008
#define ACL_PROF_API_STATS      0x400000000
#define ACL_PROF_GE_API_L0      0x0200
#define ACL_PROF_GE_API_L1      0x01000000
#define ACL_PROF_HCCL_TRACE     0x0020
#define ACL_PROF_L2CACHE        0x0010
#define ACL_PROF_MSPROFTX       0x0080
#define ACL_PROF_OP_ATTR        0x4000
#define ACL_PROF_RUNTIME_API    0x0100
#define ACL_PROF_TASK_MEMORY    0x1000
#define ACL_PROF_TASK_TIME      0x0002
#define ACL_PROF_TASK_TIME_L0   0x0800
#define ACL_PROF_TASK_TIME_L2   0x2000
#define ACL_PROF_TASK_TIME_L3   0x8000
#define ACL_PROF_TRAINING_TRACE 0x0040

/* Profiling. */

/** Results go to the folder `profilerResultPath` of `length` characters. */
aclError aclprofInit(const char *profilerResultPath, size_t length);

/** Ends profiling. */
aclError aclprofFinalize(void);

/** Sets a further option before aclprofCreateConfig. */
aclError aclprofSetConfig(aclprofConfigType configType, const char *config,
    size_t configLength);

/** What to record, on which devices; `dataTypeConfig` is a set of ACL_PROF_ bits. NULL on bad
 * arguments. */
aclprofConfig *aclprofCreateConfig(uint32_t *deviceIdList, uint32_t deviceNums,
    aclprofAicoreMetrics aicoreMetrics, const aclprofAicoreEvents *aicoreEvents,
    uint64_t dataTypeConfig);

/** Frees a configuration. */
aclError aclprofDestroyConfig(const aclprofConfig *profilerConfig);

/** Starts recording. */
aclError aclprofStart(const aclprofConfig *profilerConfig);

/** Stops recording. */
aclError aclprofStop(const aclprofConfig *profilerConfig);

/** Puts a mark with a text of `msgLen` characters into the record, in stream order. */
aclError aclprofMarkEx(const char *msg, size_t msgLen, aclrtStream stream);

/** A handle for marking iterations. */
aclprofStepInfo *aclprofCreateStepInfo(void);

/** Frees a step handle. */
void aclprofDestroyStepInfo(aclprofStepInfo *stepinfo);

/** Queues a mark for the start or end of an iteration. */
aclError aclprofGetStepTimestamp(aclprofStepInfo *stepInfo, aclprofStepTag tag,
    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
