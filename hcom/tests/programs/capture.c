/*
 * Graphs as the samples of the runtime make them: operators, copies and collectives on two streams captured and
 * replayed over changing data, a task that is replaced between replays, and captures that must be refused.
 *
 * One process per rank, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
 */
#include "job.h"

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_mul.h"

#define COUNT 257

static uint32_t rank_, ranks_;
static HcclComm comm;
static aclrtStream stream, side;
static void *x, *copy, *twice, *sum, *out;

/* The same tensor again: an executor uses up nothing of it. */
static aclTensor *tensor(void *at)
{
    const int64_t shape[1] = {COUNT}, stride[1] = {1};
    return aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, shape, 1, at);
}

static void *workspace(uint64_t bytes)
{
    void *at = NULL;
    if (bytes != 0)
        CHECK(aclrtMalloc(&at, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    return at;
}

/* to = a + factor * b */
static void add(void *a, void *b, float factor, void *to)
{
    aclTensor *first = tensor(a), *second = tensor(b), *result = tensor(to);
    aclScalar *alpha = aclCreateScalar(&factor, ACL_FLOAT);
    aclOpExecutor *executor;
    uint64_t bytes;
    CHECK(aclnnAddGetWorkspaceSize(first, second, alpha, result, &bytes, &executor));
    CHECK(aclnnAdd(workspace(bytes), bytes, executor, stream));
    CHECK(aclDestroyTensor(first));
    CHECK(aclDestroyTensor(second));
    CHECK(aclDestroyTensor(result));
    CHECK(aclDestroyScalar(alpha));
}

static void multiply(void *a, void *b, void *to)
{
    aclTensor *first = tensor(a), *second = tensor(b), *result = tensor(to);
    aclOpExecutor *executor;
    uint64_t bytes;
    CHECK(aclnnMulGetWorkspaceSize(first, second, result, &bytes, &executor));
    CHECK(aclnnMul(workspace(bytes), bytes, executor, stream));
    CHECK(aclDestroyTensor(first));
    CHECK(aclDestroyTensor(second));
    CHECK(aclDestroyTensor(result));
}

static float value(uint32_t rank, int round, int i)
{
    return (float)((i * 3 + (int)rank * 5 + round * 7) % 11);
}

static void expect(int code, int wanted, const char *what)
{
    if (code != wanted) {
        fprintf(stderr, "rank %u: %s: %d, not %d\n", rank_, what, code, wanted);
        exit(1);
    }
}

/* out = x * (all ranks' x + factor * x), the product's x being a copy that another stream made. */
static void replay(aclmdlRI graph, int round, float factor)
{
    float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = value(rank_, round, i);
    CHECK(aclrtMemcpy(x, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclmdlRIExecuteAsync(graph, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(host, sizeof host, out, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < COUNT; i++) {
        float all = 0;
        for (uint32_t rank = 0; rank < ranks_; rank++)
            all += (1 + factor) * value(rank, round, i);
        if (host[i] != all * value(rank_, round, i)) {
            fprintf(stderr, "rank %u: replay %d: element %d is %f\n", rank_, round, i, (double)host[i]);
            exit(1);
        }
    }
}

static void refusals(aclrtEvent event)
{
    aclmdlRI graph = NULL;
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    float host = 0;

    CHECK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    expect(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), ACL_ERROR_RT_STREAM_CAPTURED,
        "a second begin");
    /* A relaxed thread may copy meanwhile. */
    CHECK(aclmdlRICaptureThreadExchangeMode(&mode));
    CHECK(aclrtMemcpy(&host, sizeof host, x, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(aclmdlRICaptureThreadExchangeMode(&mode));
    expect((int)mode, ACL_MODEL_RI_CAPTURE_MODE_RELAXED, "the mode that was exchanged");
    CHECK(aclrtRecordEvent(event, stream));
    CHECK(aclrtStreamWaitEvent(side, event));
    CHECK(aclrtMemcpyAsync(copy, 4, x, 4, ACL_MEMCPY_DEVICE_TO_DEVICE, side));
    expect(aclmdlRICaptureEnd(stream, &graph), ACL_ERROR_RT_STREAM_UNJOINED, "an end without the join");
    expect(aclmdlRICaptureEnd(stream, &graph), ACL_ERROR_RT_STREAM_NOT_CAPTURED, "an end without a begin");

    CHECK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    expect(aclrtMemcpy(&host, sizeof host, x, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST),
        ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a copy that waits");
    expect(aclmdlRICaptureEnd(stream, &graph), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the end after it");
}

int main(int argc, char **argv)
{
    HcclRootInfo ticket;
    aclmdlRI graph;
    aclrtTaskGrp group;
    aclrtEvent forked, joined;
    aclmdlRICaptureStatus status;
    const size_t bytes = COUNT * sizeof(float);
    void **all[] = {&x, &copy, &twice, &sum, &out};
    char path[256];

    rank_ = variable("RANK");
    ranks_ = variable("WORLD_SIZE");
    memset(&ticket, 0, sizeof ticket);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice((int32_t)rank_));
    if (rank_ == 0)
        CHECK(HcclGetRootInfo(&ticket));
    share(rank_, ranks_, &ticket, sizeof ticket);
    CHECK(HcclCommInitRootInfo(ranks_, &ticket, rank_, &comm));
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtCreateStream(&side));
    CHECK(aclrtCreateEventExWithFlag(&forked, ACL_EVENT_SYNC));
    CHECK(aclrtCreateEventExWithFlag(&joined, ACL_EVENT_SYNC));
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        CHECK(aclrtMalloc(all[index], bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    refusals(forked);

    CHECK(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(aclrtRecordEvent(forked, stream));
    CHECK(aclrtStreamWaitEvent(side, forked));
    CHECK(aclrtMemcpyAsync(copy, bytes, x, bytes, ACL_MEMCPY_DEVICE_TO_DEVICE, side));
    CHECK(aclrtRecordEvent(joined, side));
    CHECK(aclmdlRICaptureGetInfo(side, &status, NULL));
    expect((int)status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, "the stream that joined");
    CHECK(aclmdlRICaptureTaskGrpBegin(stream));
    add(x, x, 1, twice);
    CHECK(aclmdlRICaptureTaskGrpEnd(stream, &group));
    CHECK(HcclAllReduce(twice, sum, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    CHECK(aclrtStreamWaitEvent(stream, joined));
    multiply(sum, copy, out);
    CHECK(aclmdlRICaptureEnd(stream, &graph));

    for (int round = 0; round < 5; round++)
        replay(graph, round, 1);
    CHECK(aclmdlRICaptureTaskUpdateBegin(stream, group));
    add(x, x, 3, twice);
    CHECK(aclmdlRICaptureTaskUpdateEnd(stream));
    for (int round = 5; round < 8; round++)
        replay(graph, round, 3);

    snprintf(path, sizeof path, "%s/graph%u.json", argc > 1 ? argv[1] : ".", rank_);
    CHECK(aclmdlRIDebugJsonPrint(graph, path, 1));
    CHECK(aclmdlRIDestroy(graph));
    CHECK(HcclCommDestroy(comm));
    CHECK(aclrtDestroyEvent(forked));
    CHECK(aclrtDestroyEvent(joined));
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        CHECK(aclrtFree(*all[index]));
    CHECK(aclrtDestroyStream(side));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice((int32_t)rank_));
    CHECK(aclFinalize());
    printf("captured and replayed\n");
    return 0;
}
