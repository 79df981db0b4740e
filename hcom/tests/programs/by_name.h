/* Every function of HCCL found by its name, in the library opened by its name, instead of being linked. */
#ifndef BY_NAME_H
#define BY_NAME_H

#include <dlfcn.h>

static void *function(const char *name)
{
    void *library = dlopen("libhccl.so", RTLD_NOW);
    void *found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

#define NAMED(name) ((__typeof__(&name))function(#name))

#define HcclGetRootInfo NAMED(HcclGetRootInfo)
#define HcclCommInitRootInfoConfig NAMED(HcclCommInitRootInfoConfig)
#define HcclCreateSubCommConfig NAMED(HcclCreateSubCommConfig)
#define HcclGetCommName NAMED(HcclGetCommName)
#define HcclGetRankId NAMED(HcclGetRankId)
#define HcclGetRankSize NAMED(HcclGetRankSize)
#define HcclGetCommAsyncError NAMED(HcclGetCommAsyncError)
#define HcclGetCommConfigCapability NAMED(HcclGetCommConfigCapability)
#define HcclCommDestroy NAMED(HcclCommDestroy)
#define HcclAllReduce NAMED(HcclAllReduce)
#define HcclBroadcast NAMED(HcclBroadcast)
#define HcclReduce NAMED(HcclReduce)
#define HcclReduceScatter NAMED(HcclReduceScatter)
#define HcclReduceScatterV NAMED(HcclReduceScatterV)
#define HcclScatter NAMED(HcclScatter)
#define HcclAllGather NAMED(HcclAllGather)
#define HcclAllGatherV NAMED(HcclAllGatherV)
#define HcclAlltoAll NAMED(HcclAlltoAll)
#define HcclAlltoAllV NAMED(HcclAlltoAllV)
#define HcclAlltoAllVC NAMED(HcclAlltoAllVC)
#define HcclSend NAMED(HcclSend)
#define HcclRecv NAMED(HcclRecv)
#define HcclBatchSendRecv NAMED(HcclBatchSendRecv)
#define HcclBarrier NAMED(HcclBarrier)

#endif
