/*
 * ACL runtime: start, devices, contexts, streams, events, callbacks, kernels.
 * Work queues on streams and runs later; its errors appear at the next synchronisation.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_RT_H
#define HCOM_ACL_ACL_RT_H

#include "acl_base_rt.h"
#include "acl_rt_graph.h"
#include "acl_rt_memory.h"
#include "acl_rt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Start, end and versions. */

/** Starts the library. `configPath` is NULL or a JSON file. A repeated call counts up and
 * returns 100002, which is harmless. */
aclError aclInit(const char *configPath);

/** Ends the library, whatever the count; a second call returns 100037. */
aclError aclFinalize(void);

/** Counts down once and reports the new count; 100037 when it is already 0.
 * @since torch_npu 2.9 */
aclError aclFinalizeReference(uint64_t *refCount);

/** Runs `cbFunc` when aclInit does. @since torch_npu 2.9 */
aclError aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc,
    void *userData);

/** Name of the chip, for example "Ascend910_9382"; NULL on failure. The text belongs to the
 * library. */
const char *aclrtGetSocName(void);

/** Version of the ACL interface, for example 1, 17, 0. */
aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion);

/** Version of an installed package. aclsysGetVersionStr replaces it. @since torch_npu 2.9 */
aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version);

/** Version text of the package into a buffer of ACL_PKG_VERSION_MAX_SIZE bytes.
 * @since torch_npu 2.9 */
aclError aclsysGetVersionStr(char *pkgName, char *versionStr);

/** Version as major * 10000000 + minor * 100000 + patch * 1000. @since torch_npu 2.9 */
aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum);

/** 1 when programs built for `socVersion` run on this chip. @since torch_npu 2.9 */
aclError aclrtCheckArchCompatibility(const char *socVersion, int32_t *canCompatible);

/** The thread's last error; stays set. @since torch_npu 2.9 */
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);

/** The thread's last error; reading clears it. @since torch_npu 2.9 */
aclError aclrtGetLastError(aclrtLastErrLevel level);

/* Devices. */

/** Number of visible devices; ASCEND_RT_VISIBLE_DEVICES selects them. */
aclError aclrtGetDeviceCount(uint32_t *count);

/** Makes a device current for this thread and counts one more user in the process. Out of range:
 * 107001. */
aclError aclrtSetDevice(int32_t deviceId);

/** Counts one user less. At zero it waits for queued work and frees the default context with its
 * streams. */
aclError aclrtResetDevice(int32_t deviceId);

/** Frees the device's resources in this process whatever the count. @since torch_npu 2.9 */
aclError aclrtResetDeviceForce(int32_t deviceId);

/** The thread's current device; 107002 when it has none. */
aclError aclrtGetDevice(int32_t *deviceId);

/** ACL_HOST in a server, ACL_DEVICE on the card itself. */
aclError aclrtGetRunMode(aclrtRunMode *runMode);

/** Waits for all work of the current device. */
aclError aclrtSynchronizeDevice(void);

/** The same, at most `timeout` ms; -1 waits for ever. Expiry: 507046. @since torch_npu 2.9 */
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);

/** Drops the work queued on the device. Later submissions return 107022. `timeout` in ms. */
aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout);

/** 1 when `deviceId` can reach the memory of another device, else 0. */
aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId,
    int32_t peerDeviceId);

/** Lets the current device reach a peer's memory, one direction. `flags` is 0. */
aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);

/** Takes that access back. */
aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId);

/** 1 when the access is on. @since torch_npu 2.9 */
aclError aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t *status);

/** One property of a device. @since torch_npu 2.9 */
aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value);

/** Whether a device has a feature: ACL_DEV_FEATURE_SUPPORT or ACL_DEV_FEATURE_NOT_SUPPORT.
 * @since torch_npu 2.9 */
aclError aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType,
    int32_t *value);

/** Load of the device's cores in percent. */
aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo);

/** How float operations overflow, for streams created later. */
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);

/** The current overflow mode. */
aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode);

/** This process's id outside containers, as IPC calls need it. */
aclError aclrtDeviceGetBareTgid(int32_t *pid);

/** Unique id of the device, 16 bytes. @since torch_npu 2.9 */
aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid);

/** Translates a device number of this process into the driver's. @since torch_npu 2.9 */
aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId);

/** Whether the device's default context is active. `flags` is NULL. @since torch_npu 2.9 */
aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active);

/** Calls back when a device is set or reset; NULL as callback removes it.
 * @since torch_npu 2.9 */
aclError aclrtRegDeviceStateCallback(const char *regName, aclrtDeviceStateCallback callback,
    void *args);

/** Calls back before and after a task abort. @since torch_npu 2.9 */
aclError aclrtSetDeviceTaskAbortCallback(const char *regName,
    aclrtDeviceTaskAbortCallback callback, void *args);

/** Limits the cores that work of this process may use on a device. @since torch_npu 2.9 */
aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value);

/** Reads that limit. @since torch_npu 2.9 */
aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value);

/** Removes the device's limits. @since torch_npu 2.9 */
aclError aclrtResetDeviceResLimit(int32_t deviceId);

/** Details of a device's last hardware error. @since torch_npu 2.9 */
aclError aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo *errorInfo);

/** Tries to repair the reported error. @since torch_npu 2.9 */
aclError aclrtRepairError(int32_t deviceId, const aclrtErrorInfo *errorInfo);

/** Memory ranges with uncorrectable errors; `arraySize` entries fit, `retSize` are filled. */
aclError aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray,
    size_t arraySize, size_t *retSize);

/** Repairs the listed ranges. */
aclError aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray,
    size_t arraySize);

/* Contexts. */

/** A new context on a device; becomes current for this thread and owns a default stream. */
aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);

/** Destroys a context made by aclrtCreateContext. */
aclError aclrtDestroyContext(aclrtContext context);

/** Makes a context, and with it its device, current for this thread. */
aclError aclrtSetCurrentContext(aclrtContext context);

/** The thread's context; 107002 when it has none. */
aclError aclrtGetCurrentContext(aclrtContext *context);

/** The default stream of the current context. @since torch_npu 2.9 */
aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream);

/** Sets a parameter for the current context. */
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);

/** Reads it; 107021 when unset. */
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value);

/** Sets a parameter for the process. @since torch_npu 2.9 */
aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);

/** Reads it; 107021 when unset. @since torch_npu 2.9 */
aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value);

/* Streams: queues of device work; within one stream work runs in order. NULL names the default
 * stream. */

/** A stream of the current context; 107002 without one. */
aclError aclrtCreateStream(aclrtStream *stream);

/** A stream with a priority (0 highest, 7 lowest) and ACL_STREAM_ flags. */
aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag);

/** A stream from a configuration handle. */
aclError aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle);

/** Sets one field of a configuration handle; `valueSize` in bytes. */
aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, aclrtStreamConfigAttr attr,
    const void *attrValue, size_t valueSize);

/** Waits for the queued work, then destroys the stream. NULL: 100000; while capturing: 107027. */
aclError aclrtDestroyStream(aclrtStream stream);

/** Destroys the stream without waiting. */
aclError aclrtDestroyStreamForce(aclrtStream stream);

/** Waits for the queued work and returns its first error. While capturing: 107027; after an
 * abort: 107023. */
aclError aclrtSynchronizeStream(aclrtStream stream);

/** The same, at most `timeout` ms; -1 waits for ever. Expiry: 507046. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

/** Whether all queued work is done; returns 0 in both cases. */
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);

/** Kills running and queued work of the stream. @since torch_npu 2.9 */
aclError aclrtStreamAbort(aclrtStream stream);

/** Stops the stream's execution. @since torch_npu 2.9 */
aclError aclrtStreamStop(aclrtStream stream);

/** Number of the stream. @since torch_npu 2.9 */
aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId);

/** Priority given at creation. @since torch_npu 2.9 */
aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority);

/** Flags given at creation. @since torch_npu 2.9 */
aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags);

/** How many further streams the device can hold. @since torch_npu 2.9 */
aclError aclrtGetStreamAvailableNum(uint32_t *streamCount);

/** ACL_CONTINUE_ON_FAILURE or ACL_STOP_ON_FAILURE; once per stream. After a stop nothing more
 * can be queued. */
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);

/** Sets one attribute; the value's member follows from `stmAttrType`. @since torch_npu 2.9 */
aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
    aclrtStreamAttrValue *value);

/** Reads one attribute. @since torch_npu 2.9 */
aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
    aclrtStreamAttrValue *value);

/** 1 turns overflow detection on, 0 off. */
aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag);

/** Reads the switch. */
aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag);

/** Limits the cores of one stream. @since torch_npu 2.9 */
aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value);

/** Reads that limit. @since torch_npu 2.9 */
aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value);

/** Removes the stream's limits. @since torch_npu 2.9 */
aclError aclrtResetStreamResLimit(aclrtStream stream);

/** Applies a stream's limits to operators prepared by this thread. @since torch_npu 2.9 */
aclError aclrtUseStreamResInCurrentThread(aclrtStream stream);

/** Takes them back. @since torch_npu 2.9 */
aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream);

/** The limit in force for this thread. @since torch_npu 2.9 */
aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value);

/** Activates a stream of a model from another one. @since torch_npu 2.9 */
aclError aclrtActiveStream(aclrtStream activeStream, aclrtStream stream);

/** Calls back after a stream is created and before it is destroyed; NULL as callback removes it.
 * @since torch_npu 2.9 */
aclError aclrtRegStreamStateCallback(const char *regName, aclrtStreamStateCallback callback,
    void *args);

/** Limit in seconds for event waits queued later; 0 is none. */
aclError aclrtSetOpWaitTimeout(uint32_t timeout);

/** Limit in seconds for one task. */
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout);

/** Limit in microseconds for one task; reports the value in force. @since torch_npu 2.9 */
aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout);

/* Events: marks in a stream that other streams and the host can wait for. */

/** An event that may be recorded again and again. */
aclError aclrtCreateEvent(aclrtEvent *event);

/** An event with ACL_EVENT_ flags. With ACL_EVENT_SYNC it stays set until aclrtResetEvent. */
aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag);

/** An event that may be recorded again; a wait binds to the latest record at the time of the
 * call, and an event never recorded counts as complete. */
aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag);

/** Frees the event, after pending work on it is done. */
aclError aclrtDestroyEvent(aclrtEvent event);

/** Queues a record. Event and stream belong to one device, else 107003. */
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);

/** The same; ACL_EVENT_RECORD_EXTERNAL lets a captured record be seen outside the capture.
 * @since 9.x */
aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag);

/** Queues a reset of an ACL_EVENT_SYNC event; belongs after the wait. */
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);

/** Whether the event is complete: ACL_EVENT_STATUS_COMPLETE is 0. aclrtQueryEventStatus replaces
 * it. */
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status);

/** Whether the recorded work is done: ACL_EVENT_RECORDED_STATUS_COMPLETE is 1. */
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);

/** Whether all queued waits on the event are done: ACL_EVENT_WAIT_STATUS_COMPLETE is 0. */
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status);

/** The host waits for the event. */
aclError aclrtSynchronizeEvent(aclrtEvent event);

/** The same, at most `timeout` ms; -1 waits for ever. Expiry: 507047. */
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);

/** Work queued later on the stream waits for the event. */
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

/** The same, at most `timeout` seconds; 0 waits for ever. @since torch_npu 2.9 */
aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout);

/** The same; ACL_EVENT_WAIT_EXTERNAL waits for an event outside the capture (`timeout` 0).
 * @since 9.x */
aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout,
    uint32_t flag);

/** Milliseconds between two completed events. Not complete: 507006; no time stamp: 107006; wrong
 * order: 107007. */
aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent);

/** Time of the record in microseconds since boot. @since torch_npu 2.9 */
aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp);

/** A handle of an ACL_EVENT_IPC event for other processes. @since torch_npu 2.9 */
aclError aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle);

/** Opens such a handle, which is passed by value. @since torch_npu 2.9 */
aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event);

/* Callbacks and host functions. */

/** Names the thread (its pthread_self) that runs the stream's callbacks; a second subscription
 * fails. */
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);

/** Ends that. */
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);

/** Queues `fn(userData)`; it runs inside aclrtProcessReport of the subscribed thread. */
aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType,
    aclrtStream stream);

/** Runs one pending callback, waiting at most `timeout` ms; -1 waits for ever. */
aclError aclrtProcessReport(int32_t timeout);

/** Queues `fn(args)`, run by a thread of the library while the stream waits. It must not call
 * ACL. @since torch_npu 2.9 */
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args);

/** Calls back when a task fails. */
aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback);

/** Number of the failed task. */
uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info);

/* Notifies and labels. */

/** A one-shot signal of the current device. @since torch_npu 2.9 */
aclError aclrtCreateNotify(aclrtNotify *notify, uint64_t flag);

/** Frees a notify. @since torch_npu 2.9 */
aclError aclrtDestroyNotify(aclrtNotify notify);

/** Queues setting the notify. @since torch_npu 2.9 */
aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream);

/** Queues a wait that clears the notify again; `timeout` 0 waits for ever (documents differ on
 * whether it is in seconds or ms). @since torch_npu 2.9 */
aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout);

/** A key of the notify for other processes. @since torch_npu 2.9 */
aclError aclrtNotifyGetExportKey(aclrtNotify notify, char *key, size_t len, uint64_t flags);

/** Opens such a key. @since torch_npu 2.9 */
aclError aclrtNotifyImportByKey(aclrtNotify *notify, const char *key, uint64_t flags);

/** A jump target. @since torch_npu 2.9 */
aclError aclrtCreateLabel(aclrtLabel *label);

/** Frees a label. @since torch_npu 2.9 */
aclError aclrtDestroyLabel(aclrtLabel label);

/** Places the label in the stream. @since torch_npu 2.9 */
aclError aclrtSetLabel(aclrtLabel label, aclrtStream stream);

/** A list of `num` labels to choose from. @since torch_npu 2.9 */
aclError aclrtCreateLabelList(aclrtLabel *labels, size_t num, aclrtLabelList *labelList);

/** Frees a list. @since torch_npu 2.9 */
aclError aclrtDestroyLabelList(aclrtLabelList labelList);

/** Queues a jump to the label whose index stands at device address `ptr`.
 * @since torch_npu 2.9 */
aclError aclrtSwitchLabelByIndex(void *ptr, uint32_t maxValue, aclrtLabelList labelList,
    aclrtStream stream);

/* Kernels. */

/** Loads a kernel binary from a file. @since torch_npu 2.9 */
aclError aclrtBinaryLoadFromFile(const char *binPath, aclrtBinaryLoadOptions *options,
    aclrtBinHandle *binHandle);

/** Loads a kernel binary from `length` bytes. @since torch_npu 2.9 */
aclError aclrtBinaryLoadFromData(const void *data, size_t length,
    const aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle);

/** Finds a kernel by name. */
aclError aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char *kernelName,
    aclrtFuncHandle *funcHandle);

/** Unloads a binary. */
aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle);

/** Device addresses of a kernel's cube and vector parts. @since torch_npu 2.9 */
aclError aclrtGetFunctionAddr(aclrtFuncHandle funcHandle, void **aicAddr, void **aivAddr);

/** Queues a kernel on `numBlocks` cores with a block of arguments of `argsSize` bytes. */
aclError aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData,
    size_t argsSize, aclrtStream stream);

/** The same with launch attributes. @since torch_npu 2.9 */
aclError aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    const void *argsData, size_t argsSize, aclrtLaunchKernelCfg *cfg, aclrtStream stream);

/** The same with an argument handle. @since torch_npu 2.9 */
aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    aclrtStream stream, aclrtLaunchKernelCfg *cfg, aclrtArgsHandle argsHandle, void *reserve);

/** The same with arguments in host memory. @since torch_npu 2.9 */
aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks,
    aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs, size_t argsSize,
    aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum);

/** An argument handle for a kernel. @since torch_npu 2.9 */
aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle);

/** Appends `paramSize` bytes. @since torch_npu 2.9 */
aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void *param, size_t paramSize,
    aclrtParamHandle *paramHandle);

/** Ends the argument list. @since torch_npu 2.9 */
aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle);

/** Queues filling device memory with random numbers. @since torch_npu 2.9 */
aclError aclrtRandomNumAsync(const aclrtRandomNumTaskInfo *taskInfo, const aclrtStream stream,
    void *reserve);

/** Queues writing the overflow flags to device memory. */
aclError aclrtGetOverflowStatus(void *outputAddr, size_t outputSize, aclrtStream stream);

/** Queues clearing the overflow flags. */
aclError aclrtResetOverflowStatus(aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
