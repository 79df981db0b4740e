/* One process, one thread per device: communicators that HcclCommInitAll makes, and a ring between the threads. */
#include <pthread.h>
#include <stdlib.h>

#include "job.h"

#define RANKS 4
#define COUNT 1000

static HcclComm comms[RANKS];

static void *work(void *argument)
{
    const uint32_t rank = (uint32_t)(size_t)argument, before = (rank + RANKS - 1) % RANKS;
    const size_t bytes = COUNT * sizeof(int32_t);
    int32_t *host = (int32_t *)malloc(bytes);
    HcclSendRecvItem items[2];
    aclrtStream stream;
    void *own, *other;

    CHECK(aclrtSetDevice((int32_t)rank));
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtMalloc(&own, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&other, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int32_t i = 0; i < COUNT; i++)
        host[i] = (int32_t)rank * COUNT + i;
    CHECK(aclrtMemcpy(own, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    memset(items, 0, sizeof items);
    items[0].sendRecvType = HCCL_SEND;
    items[0].buf = own;
    items[0].remoteRank = (rank + 1) % RANKS;
    items[1].sendRecvType = HCCL_RECV;
    items[1].buf = other;
    items[1].remoteRank = before;
    items[0].count = items[1].count = COUNT;
    items[0].dataType = items[1].dataType = HCCL_DATA_TYPE_INT32;
    CHECK(HcclBatchSendRecv(items, 2, comms[rank], stream));
    CHECK(HcclAllReduce(own, own, COUNT, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_MAX, comms[rank], stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(host, bytes, other, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int32_t i = 0; i < COUNT; i++)
        if (host[i] != (int32_t)before * COUNT + i)
            exit(1);
    CHECK(aclrtMemcpy(host, bytes, own, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int32_t i = 0; i < COUNT; i++)
        if (host[i] != (RANKS - 1) * COUNT + i)
            exit(1);
    CHECK(aclrtFree(own));
    CHECK(aclrtFree(other));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice((int32_t)rank));
    free(host);
    return NULL;
}

int main(void)
{
    int32_t devices[RANKS];
    pthread_t threads[RANKS];

    CHECK(aclInit(NULL));
    for (int32_t rank = 0; rank < RANKS; rank++)
        devices[rank] = rank;
    CHECK(HcclCommInitAll(RANKS, devices, comms));
    for (size_t rank = 0; rank < RANKS; rank++)
        CHECK(pthread_create(&threads[rank], NULL, work, (void *)rank));
    for (size_t rank = 0; rank < RANKS; rank++)
        CHECK(pthread_join(threads[rank], NULL));
    for (size_t rank = 0; rank < RANKS; rank++)
        CHECK(HcclCommDestroy(comms[rank]));
    CHECK(aclFinalize());
    printf("all threads are right\n");
    return 0;
}
