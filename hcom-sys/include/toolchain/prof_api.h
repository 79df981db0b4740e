/*
 * Reports of other libraries to the profiler. Programs do not call these; libraries on top of ACL
 * are linked against them. Without a recording session a report is taken and dropped.
 *
 * @library libprofapi.so
 */
#ifndef HCOM_TOOLCHAIN_PROF_API_H
#define HCOM_TOOLCHAIN_PROF_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Span of a call; its fields are private to the profiler. */
typedef struct MsprofApi MsprofApi;

/** Hears of recording sessions: what happens, with `len` bytes of detail. 0 is success. */
typedef int32_t (*ProfCommandHandle)(uint32_t type, void *data, uint32_t len);

/** Calls `handle` when a recording session starts or stops. 0 is success. */
int32_t MsprofRegisterCallback(uint32_t moduleId, ProfCommandHandle handle);

/** Reports the span of a call. 0 is success. */
int32_t MsprofReportApi(uint32_t nonPersistantFlag, const MsprofApi *api);

/** Reports a record of `length` bytes. 0 is success. */
int32_t MsprofReportCompactInfo(uint32_t nonPersistantFlag, const void *data, uint32_t length);

/** Reports a record of `length` bytes that belongs to another. 0 is success. */
int32_t MsprofReportAdditionalInfo(uint32_t nonPersistantFlag, const void *data,
    uint32_t length);

/** A number for a text of `length` bytes, the same for the same text in this process. */
uint64_t MsprofGetHashId(const char *hashInfo, size_t length);

/** The clock that reports use, in ticks. */
uint64_t MsprofSysCycleTime(void);

#ifdef __cplusplus
}
#endif

#endif
