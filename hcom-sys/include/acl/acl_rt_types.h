/*
 * ACL runtime: structures and callbacks, part of acl_rt.h.
 */
#ifndef HCOM_ACL_ACL_RT_TYPES_H
#define HCOM_ACL_ACL_RT_TYPES_H

#include "acl_rt_enums.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Further load figures; NULL so far. */
typedef struct aclrtUtilizationExtendInfo aclrtUtilizationExtendInfo;
/** A failed task. */
typedef struct aclrtExceptionInfo aclrtExceptionInfo;

/** Version of a package as text. 512 bytes. */
typedef struct aclCANNPackageVersion {
    char version[128];
    char majorVersion[64];
    char minorVersion[64];
    char releaseVersion[64];
    char patchVersion[64];
    char reserved[128];
} aclCANNPackageVersion;

/** Unique id of a device. 16 bytes. */
typedef struct aclrtUuid {
    char bytes[16];
} aclrtUuid;

/** A range with an uncorrectable error. 128 bytes. */
typedef struct aclrtMemUceInfo {
    void *addr;
    size_t len;
    size_t reserved[14];
} aclrtMemUceInfo;

/** Several such ranges. 2568 bytes. */
typedef struct aclrtMemUceInfoArray {
    size_t arraySize;
    aclrtMemUceInfo memUceInfoArray[20];
} aclrtMemUceInfoArray;

/** Detail by kind of error. 2568 bytes. */
typedef union aclrtErrorInfoDetail {
    aclrtMemUceInfoArray uceInfo;
    aclrtAicoreErrorType aicoreErrType;
} aclrtErrorInfoDetail;

/** Details of a hardware error. 2576 bytes. */
typedef struct aclrtErrorInfo {
    uint8_t tryRepair;
    uint8_t hasDetail;
    uint8_t reserved[2];
    aclrtErrorType errorType;
    aclrtErrorInfoDetail detail;
} aclrtErrorInfo;

/** Load in percent; -1 where unknown. 24 bytes. */
typedef struct aclrtUtilizationInfo {
    int32_t cubeUtilization;
    int32_t vectorUtilization;
    int32_t aicpuUtilization;
    int32_t memoryUtilization;
    aclrtUtilizationExtendInfo *utilizationExtend;
} aclrtUtilizationInfo;

/** Value of a stream attribute. 16 bytes. */
typedef union aclrtStreamAttrValue {
    uint64_t failureMode;
    uint32_t overflowSwitch;
    uint32_t userCustomTag;
    uint32_t cacheOpInfoSwitch;
    uint32_t streamPriority;
    uint32_t reserve[4];
} aclrtStreamAttrValue;

/** Configuration of a stream. 32 bytes. */
typedef struct aclrtStreamConfigHandle {
    void *workptr;
    size_t workSize;
    size_t flag;
    uint32_t priority;
} aclrtStreamConfigHandle;

/** An event for another process. 64 bytes. */
typedef struct aclrtIpcEventHandle {
    char reserved[64];
} aclrtIpcEventHandle;

/** A place of memory: for a device, its number. 8 bytes. */
typedef struct aclrtMemLocation {
    uint32_t id;
    aclrtMemLocationType type;
} aclrtMemLocation;

/** What is known of an address. 28 bytes. */
typedef struct aclrtPtrAttributes {
    aclrtMemLocation location;
    uint32_t pageSize;
    uint32_t rsv[4];
} aclrtPtrAttributes;

/** Properties of physical memory. 32 bytes. */
typedef struct aclrtPhysicalMemProp {
    aclrtMemHandleType handleType;
    aclrtMemAllocationType allocationType;
    aclrtMemAttr memAttr;
    aclrtMemLocation location;
    uint64_t reserve;
} aclrtPhysicalMemProp;

/** Access of one place. 24 bytes. */
typedef struct aclrtMemAccessDesc {
    aclrtMemAccessFlags flags;
    aclrtMemLocation location;
    uint8_t rsv[12];
} aclrtMemAccessDesc;

/** Value of an allocation attribute. 8 bytes. */
typedef union aclrtMallocAttrValue {
    uint16_t moduleId;
    uint32_t deviceId;
    uint32_t vaFlag;
    uint8_t rsv[8];
} aclrtMallocAttrValue;

/** One attribute of an allocation. 12 bytes. */
typedef struct aclrtMallocAttribute {
    aclrtMallocAttrType attr;
    aclrtMallocAttrValue value;
} aclrtMallocAttribute;

/** Attributes of an allocation. 16 bytes. */
typedef struct aclrtMallocConfig {
    aclrtMallocAttribute *attrs;
    size_t numAttrs;
} aclrtMallocConfig;

/** Bytes one component uses. 112 bytes. */
typedef struct aclrtMemUsageInfo {
    char name[32];
    uint64_t curMemSize;
    uint64_t memPeakSize;
    size_t reserved[8];
} aclrtMemUsageInfo;

/** Ends of a batch of copies. 32 bytes. */
typedef struct aclrtMemcpyBatchAttr {
    aclrtMemLocation dstLoc;
    aclrtMemLocation srcLoc;
    uint8_t rsv[16];
} aclrtMemcpyBatchAttr;

/** Where an address in the arguments points to, both in bytes. 8 bytes. */
typedef struct aclrtPlaceHolderInfo {
    uint32_t addrOffset;
    uint32_t dataOffset;
} aclrtPlaceHolderInfo;

/** Value of an option. 16 bytes. */
typedef union aclrtBinaryLoadOptionValue {
    uint32_t isLazyLoad;
    uint32_t magic;
    int32_t cpuKernelMode;
    uint32_t rsv[4];
} aclrtBinaryLoadOptionValue;

/** One option. 20 bytes. */
typedef struct aclrtBinaryLoadOption {
    aclrtBinaryLoadOptionType type;
    aclrtBinaryLoadOptionValue value;
} aclrtBinaryLoadOption;

/** Options. 16 bytes. */
typedef struct aclrtBinaryLoadOptions {
    aclrtBinaryLoadOption *options;
    size_t numOpt;
} aclrtBinaryLoadOptions;

/** Microseconds in two halves. 8 bytes. */
typedef struct aclrtTimeoutUs {
    uint32_t timeoutLow;
    uint32_t timeoutHigh;
} aclrtTimeoutUs;

/** Value of a launch attribute. 16 bytes. */
typedef union aclrtLaunchKernelAttrValue {
    uint8_t schemMode;
    uint32_t localMemorySize;
    uint32_t dynUBufSize;
    aclrtEngineType engineType;
    uint32_t blockDimOffset;
    uint8_t isBlockTaskPrefetch;
    uint8_t isDataDump;
    uint16_t timeout;
    aclrtTimeoutUs timeoutUs;
    uint8_t enableProfiling;
    uint32_t rsv[4];
} aclrtLaunchKernelAttrValue;

/** One launch attribute. 20 bytes. */
typedef struct aclrtLaunchKernelAttr {
    aclrtLaunchKernelAttrId id;
    aclrtLaunchKernelAttrValue value;
} aclrtLaunchKernelAttr;

/** Launch attributes. 16 bytes. */
typedef struct aclrtLaunchKernelCfg {
    aclrtLaunchKernelAttr *attrs;
    size_t numAttrs;
} aclrtLaunchKernelCfg;

/** A parameter: a value or a device address. 16 bytes. */
typedef struct aclrtRandomParaInfo {
    uint8_t isAddr;
    uint8_t valueOrAddr[8];
    uint8_t size;
    uint8_t rsv[6];
} aclrtRandomParaInfo;

/** Parameters of a dropout mask. 16 bytes. */
typedef struct aclrtDropoutBitmaskInfo {
    aclrtRandomParaInfo dropoutRation;
} aclrtDropoutBitmaskInfo;

/** Parameters of the uniform distribution. 32 bytes. */
typedef struct aclrtUniformDisInfo {
    aclrtRandomParaInfo min;
    aclrtRandomParaInfo max;
} aclrtUniformDisInfo;

/** Parameters of the normal distributions. 32 bytes. */
typedef struct aclrtNormalDisInfo {
    aclrtRandomParaInfo mean;
    aclrtRandomParaInfo stddev;
} aclrtNormalDisInfo;

/** Distribution with parameters. 36 bytes. */
typedef struct aclrtRandomNumFuncParaInfo {
    aclrtRandomNumFuncType funcType;
    union {
        aclrtDropoutBitmaskInfo dropoutBitmaskInfo;
        aclrtUniformDisInfo uniformDisInfo;
        aclrtNormalDisInfo normalDisInfo;
    } paramInfo;
} aclrtRandomNumFuncParaInfo;

/** A task that makes random numbers. 104 bytes. */
typedef struct aclrtRandomNumTaskInfo {
    aclDataType dataType;
    aclrtRandomNumFuncParaInfo randomNumFuncParaInfo;
    void *randomParaAddr;
    void *randomResultAddr;
    void *randomCounterAddr;
    aclrtRandomParaInfo randomSeed;
    aclrtRandomParaInfo randomNum;
    uint8_t rsv[8];
} aclrtRandomNumTaskInfo;

/** A conditional task; passed by value. 24 bytes. */
typedef struct tagAclmdlRICondTaskParams {
    aclmdlRICondHandle handle;
    aclmdlRICondTaskType type;
    uint32_t size;
    aclmdlRI *modelRIArray;
} aclmdlRICondTaskParams;

/** Runs inside aclrtProcessReport. */
typedef void (*aclrtCallback)(void *userData);
/** Runs on a thread of the library. */
typedef void (*aclrtHostFunc)(void *args);
/** Hears of a failed task. */
typedef void (*aclrtExceptionInfoCallback)(aclrtExceptionInfo *exceptionInfo);
/** Hears of a device being set or reset. */
typedef void (*aclrtDeviceStateCallback)(int32_t devId, aclrtDeviceState state, void *args);
/** Hears of a stream being created or destroyed. */
typedef void (*aclrtStreamStateCallback)(aclrtStream stm, aclrtStreamState state, void *args);
/** Hears of a task abort; `timeout` in ms. */
typedef int32_t (*aclrtDeviceTaskAbortCallback)(
    int32_t deviceId, aclrtDeviceTaskAbortStage stage, uint32_t timeout, void *args);
/** Runs with aclInit and its configuration text of `len` bytes. */
typedef aclError (*aclInitCallbackFunc)(const char *configStr, size_t len, void *userData);

#ifdef __cplusplus
}
#endif

#endif
