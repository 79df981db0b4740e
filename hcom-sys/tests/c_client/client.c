/*
 * A client of ACL and HCCL as other people write them, in the common part of C11 and C++11: ranks as
 * threads or as processes, the collectives, every element checked.
 *
 * Usage: client threads|processes RANKS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "hccl/hccl.h"

#define COUNT 1000

#define ACL(call)                                                                                  \
    do {                                                                                           \
        aclError code = (call);                                                                    \
        if (code != ACL_SUCCESS) {                                                                 \
            fprintf(stderr, "%s: %d %s\n", #call, code, aclGetRecentErrMsg());                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define HCCL(call)                                                                                 \
    do {                                                                                           \
        HcclResult code = (call);                                                                  \
        if (code != HCCL_SUCCESS) {                                                                \
            fprintf(stderr, "%s: %d %s\n", #call, (int)code, HcclGetErrorString(code));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct rank {
    uint32_t rank;
    uint32_t ranks;
    HcclRootInfo ticket;
};

/* Exact in f32, and different for every rank and element. */
static float value(uint32_t rank, uint32_t i)
{
    return (float)(rank * 4096 + i);
}

static void expect(const struct rank *me, const char *what, uint32_t i, float got, float want)
{
    if (got != want) {
        fprintf(stderr, "rank %u: %s[%u] is %f, not %f\n", me->rank, what, i, got, want);
        exit(1);
    }
}

static void read_back(aclrtStream stream, float *host, const void *device, size_t bytes)
{
    ACL(aclrtSynchronizeStream(stream));
    ACL(aclrtMemcpy(host, bytes, device, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
}

static void *run(void *argument)
{
    struct rank *me = (struct rank *)argument;
    const size_t bytes = COUNT * sizeof(float);
    float *host = (float *)malloc(bytes * me->ranks);
    void *in, *out;
    aclrtStream stream;
    HcclComm comm;
    uint32_t rank, ranks;

    ACL(aclrtSetDevice((int32_t)me->rank));
    ACL(aclrtCreateStream(&stream));
    ACL(aclrtMalloc(&in, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    ACL(aclrtMalloc(&out, bytes * me->ranks, ACL_MEM_MALLOC_HUGE_FIRST));
    HCCL(HcclCommInitRootInfo(me->ranks, &me->ticket, me->rank, &comm));
    HCCL(HcclGetRankId(comm, &rank));
    HCCL(HcclGetRankSize(comm, &ranks));
    if (rank != me->rank || ranks != me->ranks) {
        fprintf(stderr, "rank %u of %u became %u of %u\n", me->rank, me->ranks, rank, ranks);
        exit(1);
    }

    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = value(me->rank, i);
    ACL(aclrtMemcpy(in, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE));

    HCCL(HcclAllReduce(in, out, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    ACL(aclrtSynchronizeStream(stream));
    ACL(aclrtMemcpy(host, bytes, out, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (uint32_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < me->ranks; r++)
            sum += value(r, i);
        expect(me, "all_reduce", i, host[i], sum);
    }

    HCCL(HcclAllGather(in, out, COUNT, HCCL_DATA_TYPE_FP32, comm, stream));
    ACL(aclrtSynchronizeStream(stream));
    ACL(aclrtMemcpy(host, bytes * me->ranks, out, bytes * me->ranks, ACL_MEMCPY_DEVICE_TO_HOST));
    for (uint32_t i = 0; i < COUNT * me->ranks; i++)
        expect(me, "all_gather", i, host[i], value(i / COUNT, i % COUNT));

    /* Each rank keeps its own block of the sum of what all gathered. */
    ACL(aclrtMemcpy(out, bytes * me->ranks, host, bytes * me->ranks, ACL_MEMCPY_HOST_TO_DEVICE));
    void *part, *all;
    ACL(aclrtMalloc(&part, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    ACL(aclrtMalloc(&all, bytes * me->ranks, ACL_MEM_MALLOC_HUGE_FIRST));
    HCCL(HcclReduceScatter(out, part, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    read_back(stream, host, part, bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        expect(me, "reduce_scatter", i, host[i], (float)me->ranks * value(me->rank, i));

    /* Element i of block b of rank r is value(r, b * COUNT + i): block b goes to rank b. */
    for (uint32_t i = 0; i < COUNT * me->ranks; i++)
        host[i] = value(me->rank, i);
    ACL(aclrtMemcpy(out, bytes * me->ranks, host, bytes * me->ranks, ACL_MEMCPY_HOST_TO_DEVICE));
    HCCL(HcclAlltoAll(out, COUNT, HCCL_DATA_TYPE_FP32, all, COUNT, HCCL_DATA_TYPE_FP32, comm,
        stream));
    read_back(stream, host, all, bytes * me->ranks);
    for (uint32_t i = 0; i < COUNT * me->ranks; i++)
        expect(me, "all_to_all", i, host[i], value(i / COUNT, me->rank * COUNT + i % COUNT));

    HCCL(HcclScatter(out, part, COUNT, HCCL_DATA_TYPE_FP32, 0, comm, stream));
    read_back(stream, host, part, bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        expect(me, "scatter", i, host[i], value(0, me->rank * COUNT + i));

    HCCL(HcclReduce(in, part, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, 0, comm, stream));
    read_back(stream, host, part, bytes);
    for (uint32_t i = 0; i < COUNT && me->rank == 0; i++)
        expect(me, "reduce", i, host[i], value(me->ranks - 1, i));

    /* Round the ring, sends and receives in one call. */
    HcclSendRecvItem items[2];
    memset(items, 0, sizeof items);
    items[0].sendRecvType = HCCL_SEND;
    items[0].buf = in;
    items[0].remoteRank = (me->rank + 1) % me->ranks;
    items[1].sendRecvType = HCCL_RECV;
    items[1].buf = part;
    items[1].remoteRank = (me->rank + me->ranks - 1) % me->ranks;
    items[0].count = items[1].count = COUNT;
    items[0].dataType = items[1].dataType = HCCL_DATA_TYPE_FP32;
    HCCL(HcclBatchSendRecv(items, 2, comm, stream));
    read_back(stream, host, part, bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        expect(me, "ring", i, host[i], value(items[1].remoteRank, i));

    /* The last rank sends to the first. */
    if (me->rank == me->ranks - 1) {
        HCCL(HcclSend(in, COUNT, HCCL_DATA_TYPE_FP32, 0, comm, stream));
    } else if (me->rank == 0) {
        HCCL(HcclRecv(part, COUNT, HCCL_DATA_TYPE_FP32, me->ranks - 1, comm, stream));
        read_back(stream, host, part, bytes);
        for (uint32_t i = 0; i < COUNT; i++)
            expect(me, "recv", i, host[i], value(me->ranks - 1, i));
    }
    ACL(aclrtSynchronizeStream(stream));
    ACL(aclrtFree(part));
    ACL(aclrtFree(all));

    HCCL(HcclBroadcast(in, COUNT, HCCL_DATA_TYPE_FP32, me->ranks - 1, comm, stream));
    HCCL(HcclBarrier(comm, stream));
    ACL(aclrtSynchronizeStream(stream));
    ACL(aclrtMemcpy(host, bytes, in, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (uint32_t i = 0; i < COUNT; i++)
        expect(me, "broadcast", i, host[i], value(me->ranks - 1, i));

    HCCL(HcclCommDestroy(comm));
    ACL(aclrtFree(in));
    ACL(aclrtFree(out));
    ACL(aclrtDestroyStream(stream));
    ACL(aclrtResetDevice((int32_t)me->rank));
    free(host);
    printf("rank %u of %u: ok\n", me->rank, me->ranks);
    fflush(stdout);
    return NULL;
}

static void ticket(struct rank *me)
{
    ACL(aclrtSetDevice((int32_t)me->rank));
    HCCL(HcclGetRootInfo(&me->ticket));
}

static int threads(uint32_t ranks)
{
    pthread_t *thread = (pthread_t *)calloc(ranks, sizeof *thread);
    struct rank *rank = (struct rank *)calloc(ranks, sizeof *rank);

    ACL(aclInit(NULL));
    ticket(&rank[0]);
    for (uint32_t r = 0; r < ranks; r++) {
        rank[r].rank = r;
        rank[r].ranks = ranks;
        rank[r].ticket = rank[0].ticket;
        if (pthread_create(&thread[r], NULL, run, &rank[r]) != 0)
            return 1;
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    ACL(aclrtResetDevice(0));
    ACL(aclFinalize());
    free(rank);
    free(thread);
    return 0;
}

/* The ticket travels through one pipe per rank; nothing of ACL runs before the fork. */
static int processes(uint32_t ranks)
{
    int (*pipes)[2] = (int (*)[2])calloc(ranks, sizeof *pipes);
    int status = 0, failed = 0;

    for (uint32_t r = 0; r < ranks; r++)
        if (pipe(pipes[r]) != 0)
            return 1;
    for (uint32_t r = 0; r < ranks; r++) {
        if (fork() != 0)
            continue;
        struct rank me;
        memset(&me, 0, sizeof me);
        me.rank = r;
        me.ranks = ranks;
        ACL(aclInit(NULL));
        if (r == 0) {
            ticket(&me);
            for (uint32_t to = 1; to < ranks; to++)
                if (write(pipes[to][1], &me.ticket, sizeof me.ticket) != sizeof me.ticket)
                    exit(1);
        } else if (read(pipes[r][0], &me.ticket, sizeof me.ticket) != sizeof me.ticket) {
            exit(1);
        }
        run(&me);
        if (r == 0)
            ACL(aclrtResetDevice(0));
        ACL(aclFinalize());
        exit(0);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        wait(&status);
        failed |= status;
    }
    free(pipes);
    return failed != 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const uint32_t ranks = (uint32_t)atoi(argv[2]);
    return strcmp(argv[1], "threads") == 0 ? threads(ranks) : processes(ranks);
}
