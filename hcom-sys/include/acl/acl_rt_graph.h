/*
 * ACL runtime: captured and built graphs, part of acl_rt.h.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_RT_GRAPH_H
#define HCOM_ACL_ACL_RT_GRAPH_H

#include "acl_rt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Capture: work queued on a stream is kept instead of run. */

/** Starts capturing a stream; already capturing: 107027. @since torch_npu 2.9 */
aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode);

/** Whether the stream captures, and into which graph; `modelRI` may be NULL.
 * @since torch_npu 2.9 */
aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status,
    aclmdlRI *modelRI);

/** Ends the capture on its first stream and hands out the graph. Not capturing: 107029; other
 * stream: 107036; other thread: 107038; a forked stream not joined: 107025; invalidated:
 * 507903. @since torch_npu 2.9 */
aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI);

/** Swaps the thread's capture mode with `*mode`. @since torch_npu 2.9 */
aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode);

/** Starts a group of tasks that can be updated later. @since torch_npu 2.9 */
aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream);

/** Ends the group and hands out its handle. @since torch_npu 2.9 */
aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle);

/** Starts replacing a group's tasks; the stream must not capture (107027). The same calls
 * follow, in the same order. @since torch_npu 2.9 */
aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle);

/** Ends the replacement; it takes effect in stream order. @since torch_npu 2.9 */
aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream);

/** Starts capturing a stream into an existing graph. @since 9.x */
aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI,
    aclmdlRICaptureMode mode);

/* Replay and inspection. */

/** Queues a replay of the whole graph; the captured addresses are read anew.
 * @since torch_npu 2.9 */
aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream);

/** Runs a built graph and waits at most `timeout` ms. @since torch_npu 2.9 */
aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout);

/** Stops a running replay. @since torch_npu 2.9 */
aclError aclmdlRIAbort(aclmdlRI modelRI);

/** Destroys a graph; 107037 while it runs. @since torch_npu 2.9 */
aclError aclmdlRIDestroy(aclmdlRI modelRI);

/** Calls `func(userData)` when the graph is destroyed. @since torch_npu 2.9 */
aclError aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void *userData);

/** Writes the graph to the log. @since torch_npu 2.9 */
aclError aclmdlRIDebugPrint(aclmdlRI modelRI);

/** Writes the graph as JSON to a file. @since torch_npu 2.9 */
aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags);

/** Number of the graph. @since torch_npu 2.9 */
aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId);

/** Names the graph. @since torch_npu 2.9 */
aclError aclmdlRISetName(aclmdlRI modelRI, const char *name);

/** Copies the name into `maxLen` bytes. @since torch_npu 2.9 */
aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char *name);

/** The graph's streams; with `streams` NULL only their number. @since torch_npu 2.9 */
aclError aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream *streams, uint32_t *numStreams);

/** The tasks of one stream; with `tasks` NULL only their number. @since torch_npu 2.9 */
aclError aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask *tasks, uint32_t *numTasks);

/** Kind of a task. @since torch_npu 2.9 */
aclError aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType *type);

/* Graphs built stream by stream. */

/** An empty graph. `flag` is 0. @since torch_npu 2.9 */
aclError aclmdlRIBuildBegin(aclmdlRI *modelRI, uint32_t flag);

/** Makes an ACL_STREAM_PERSISTENT stream part of the graph. @since torch_npu 2.9 */
aclError aclmdlRIBindStream(aclmdlRI modelRI, aclrtStream stream, uint32_t flag);

/** Marks the end of the graph on a stream. @since torch_npu 2.9 */
aclError aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream);

/** Ends the building. `reserve` is NULL. @since torch_npu 2.9 */
aclError aclmdlRIBuildEnd(aclmdlRI modelRI, void *reserve);

/** Takes a stream out of the graph. @since torch_npu 2.9 */
aclError aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream);

/* Conditional tasks. */

/** A condition of the graph with a default value per launch. @since 9.x */
aclError aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue,
    aclmdlRICondHandleFlag flag, aclmdlRICondHandle *handle);

/** Adds a task that runs graphs depending on a condition. @since 9.x */
aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags);

#ifdef __cplusplus
}
#endif

#endif
